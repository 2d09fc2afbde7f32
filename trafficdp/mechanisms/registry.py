"""All mechanisms, with their default settings: ``MECHANISMS``, one tuple for both kinds of loss.

Kinds never mix: epsilon and rho add up only by a named conversion (``privacy.conversion``). ``auto`` chooses
among those of pure epsilon; a store that counts in rho knows the others alone. Contract suite and audits run
them all.
"""

from __future__ import annotations

from typing import Any

from trafficdp._validate import did_you_mean
from trafficdp.errors import UsageError
from trafficdp.mechanisms.approx_mechanism import ApproxMechanism
from trafficdp.mechanisms.arrays.array_averaging import ArrayAveraging
from trafficdp.mechanisms.arrays.array_means import Grouping
from trafficdp.mechanisms.arrays.levy import Levy
from trafficdp.mechanisms.arrays.pooled import Pooled
from trafficdp.mechanisms.arrays.quantile import Quantile, QuantileRule
from trafficdp.mechanisms.arrays.two_stage import TwoStage
from trafficdp.mechanisms.blocks.linf_block import LinfBlock
from trafficdp.mechanisms.clipping.akmv import AKMV
from trafficdp.mechanisms.clipping.direct_clipping import DirectClipping
from trafficdp.mechanisms.clipping.worst_case_clipping import WorstCaseClipping
from trafficdp.mechanisms.gaussian.gaussian_twin import GaussianTwin
from trafficdp.mechanisms.huber.gaussian_huber import GaussianHuber
from trafficdp.mechanisms.huber.huber import Huber
from trafficdp.mechanisms.laplace.baseline import Baseline
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.plan.plan import Plan, Scaling
from trafficdp.mechanisms.two_moments import KnownTwoMoments, TwoMoments
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss_kind import LossKind

# until every family states its kind, its steps and whether they are enforced
_two: Any = TwoMoments
_known: Any = KnownTwoMoments


def _stated(mechanism: Any) -> Mechanism:  # noqa: ANN401
    kind = type(getattr(mechanism, "means", mechanism))
    for name, value in (("kind", LossKind.PURE), ("enforced", False)):
        if not hasattr(kind, name):
            setattr(kind, name, value)
    found: Mechanism = mechanism
    return found


MECHANISMS: tuple[Mechanism, ...] = tuple(
    map(
        _stated,
        (
            Baseline(),
            Pooled(),
            _known(ArrayAveraging(Grouping.BEST_FIT)),
            _known(ArrayAveraging(Grouping.WRAP_AROUND)),
            _known(Levy(Grouping.BEST_FIT)),
            _known(Levy(Grouping.WRAP_AROUND)),
            _two(Quantile(QuantileRule.FIXED, Grouping.BEST_FIT)),
            _two(Quantile(QuantileRule.FIXED, Grouping.WRAP_AROUND)),
            _two(Quantile(QuantileRule.OPTIMIZED, Grouping.BEST_FIT)),
            _two(Quantile(QuantileRule.OPTIMIZED, Grouping.WRAP_AROUND)),
            Huber(),
            _known(TwoStage()),
            WorstCaseClipping(),
            WorstCaseClipping(least_exact_error=True),
            DirectClipping(),
            AKMV(),
            LinfBlock(),
            _known(GaussianTwin()),
            _two(Plan(Scaling.PRIVATE)),
            _two(Plan(Scaling.PRIVATE, power=1)),
            _two(Plan(Scaling.PUBLIC)),
            _two(Plan(Scaling.NONE)),
        ),
    )
)
"""Names are unique, whatever the kind."""

APPROX_MECHANISMS: tuple[ApproxMechanism, ...] = (GaussianHuber(),)
"""Of (epsilon, delta): compared and audited, never released."""


def mechanisms_of(kind: LossKind) -> tuple[Mechanism, ...]:
    """Return those whose loss is counted in ``kind``, in their order."""
    return tuple(mechanism for mechanism in MECHANISMS if mechanism.kind is kind)


def require_releasable(
    name: str, statistic: Statistic, kind: LossKind, *, allow_idealised: bool = False
) -> None:
    """Raise UsageError unless the mechanism ``name`` of ``kind`` can estimate ``statistic``.

    And unless its noise is exact, or ``allow_idealised``.
    """
    mechanism = mechanism_named(name, kind)
    if statistic not in mechanism.statistics:
        raise UsageError(
            f"{name} cannot estimate the {statistic.value.replace('_', ' ')}",
            expected=", ".join(each.name for each in mechanisms_of(kind) if statistic in each.statistics),
            todo="name another mechanism for it, or leave the statistic out",
        )
    if mechanism.idealised and not allow_idealised:
        raise UsageError(
            f"{name} has no exact sampler: its noise is idealised",
            todo=f"release it with `trafficdp release --allow-idealised-noise {name}`, which the manifest "
            "records, or choose another mechanism",
        )


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
