"""All mechanisms of one statistic, with their default settings: one tuple for both kinds of loss.

Kinds never mix: epsilon and rho add up only by a named conversion (``privacy.conversion``). A store knows
those of its kind alone, and ``auto`` chooses among a few of them (``AUTO_TRIES``). Contract suite and audits
run them all.
"""

from __future__ import annotations

from trafficdp.errors import UsageError, did_you_mean
from trafficdp.mechanisms.arrays.array_means import Grouping
from trafficdp.mechanisms.arrays.pooled import Pooled
from trafficdp.mechanisms.arrays.projected import ArrayAveraging, Levy, Quantile, QuantileRule
from trafficdp.mechanisms.arrays.two_stage import TwoStage
from trafficdp.mechanisms.clipping.akmv import AKMV
from trafficdp.mechanisms.clipping.worst_case_clipping import WorstCaseClipping
from trafficdp.mechanisms.gaussian.gaussian_twin import GaussianTwin
from trafficdp.mechanisms.huber.huber import Huber
from trafficdp.mechanisms.laplace.baseline import Baseline
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.plan.plan import Plan, Scaling
from trafficdp.mechanisms.two_moments import KnownTwoMoments, TwoMoments
from trafficdp.privacy.loss import LossKind

MECHANISMS: tuple[Mechanism, ...] = (
    Baseline(),
    KnownTwoMoments(Pooled()),
    KnownTwoMoments(ArrayAveraging(Grouping.BEST_FIT)),
    KnownTwoMoments(ArrayAveraging(Grouping.WRAP_AROUND)),
    KnownTwoMoments(Levy(Grouping.BEST_FIT)),
    KnownTwoMoments(Levy(Grouping.WRAP_AROUND)),
    TwoMoments(Quantile(QuantileRule.FIXED, Grouping.BEST_FIT)),
    TwoMoments(Quantile(QuantileRule.FIXED, Grouping.WRAP_AROUND)),
    TwoMoments(Quantile(QuantileRule.OPTIMIZED, Grouping.BEST_FIT)),
    TwoMoments(Quantile(QuantileRule.OPTIMIZED, Grouping.WRAP_AROUND)),
    KnownTwoMoments(Huber()),
    KnownTwoMoments(TwoStage()),
    KnownTwoMoments(WorstCaseClipping()),
    KnownTwoMoments(WorstCaseClipping(least_exact_error=True)),
    KnownTwoMoments(AKMV()),
    KnownTwoMoments(GaussianTwin()),
    TwoMoments(Plan(Scaling.PRIVATE)),
    TwoMoments(Plan(Scaling.PRIVATE, power=1)),
    TwoMoments(Plan(Scaling.PUBLIC)),
    TwoMoments(Plan(Scaling.NONE)),
)
"""Names are unique, whatever the kind."""
AUTO_TRIES = {LossKind.PURE: ("baseline", "worst_case_clipping"), LossKind.ZCDP: ("gaussian_twin",)}
"""What ``auto`` looks at beside maps of one piece. No other is the nearest to the truth on Austin's buses."""


def mechanisms_of(kind: LossKind) -> tuple[Mechanism, ...]:
    """Return those whose loss is counted in ``kind``, in their order."""
    return tuple(mechanism for mechanism in MECHANISMS if mechanism.kind is kind)


def tried_by_auto(kind: LossKind) -> tuple[Mechanism, ...]:
    """Return the mechanisms of ``kind`` that ``auto`` looks at, in their order."""
    return tuple(mechanism for mechanism in mechanisms_of(kind) if mechanism.name in AUTO_TRIES[kind])


def mechanism_named(name: str, kind: LossKind) -> Mechanism:
    """Return the mechanism of this name; raise UsageError when there is none of this ``kind``."""
    known = {mechanism.name: mechanism for mechanism in mechanisms_of(kind)}
    if name in known:
        return known[name]
    # one of another kind exists, but its losses do not add up with these
    elsewhere = any(name == each.name for each in MECHANISMS)
    raise UsageError(
        "unknown mechanism" if kind is LossKind.PURE else "unknown zCDP mechanism",
        got=f"{name}, which counts privacy loss in another kind" if elsewhere else name,
        expected="one of " + ", ".join(known),
        todo=did_you_mean(name, known),
    )
