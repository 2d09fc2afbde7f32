"""All mechanisms, with their default settings: ``MECHANISMS``, one tuple for both kinds of loss.

Kinds never mix: epsilon and rho add up only by a named conversion (``privacy.conversion``). A store knows
those of its kind alone, and ``auto`` chooses among a few of them (``AUTO_TRIES``). Contract suite and audits
run them all.
"""

from __future__ import annotations

from collections.abc import Mapping

from trafficdp._validate import did_you_mean
from trafficdp.errors import UsageError
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
from trafficdp.mechanisms.pooling.calibrated import CalibratedFlat, CalibratedPooling
from trafficdp.mechanisms.pooling.hidden_calibrated import CalibratedHidden
from trafficdp.mechanisms.two_moments import KnownTwoMoments, TwoMoments
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss_kind import LossKind

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
"""What ``auto`` looks at beside WHOLE. On Austin's buses no other is the nearest to the truth of all."""
WHOLE = {each.kind: each for each in (CalibratedPooling, CalibratedFlat, CalibratedHidden)}
"""Maps of one piece: all statistics and bins at once, of either kind of loss, by their names."""
PUBLIC_COUNTS = {
    name: each for name, each in WHOLE.items() if each.relation is NeighbouringRelation.REPLACE_USER_VALUES
}
"""Those that can be named: where nothing about a vehicle is public there is one."""


def names_of(kind: LossKind) -> tuple[str, ...]:
    """Return all names: of the mechanisms that count in ``kind``, and of maps of one piece."""
    return (*(mechanism.name for mechanism in mechanisms_of(kind)), *PUBLIC_COUNTS)


def require_together(names: Mapping[Statistic, str]) -> None:
    """Raise UsageError where a map of one piece is named for some of the statistics of ``names`` alone."""
    whole = sorted(WHOLE.keys() & {*names.values()})
    if whole and len({*names.values()}) > 1:
        raise UsageError(
            f"{whole[0]} releases all statistics together",
            got=", ".join(f"{each.value}: {name}" for each, name in names.items()),
            todo="name it for all statistics, or for none",
        )


def mechanisms_of(kind: LossKind) -> tuple[Mechanism, ...]:
    """Return those whose loss is counted in ``kind``, in their order."""
    return tuple(mechanism for mechanism in MECHANISMS if mechanism.kind is kind)


def tried_by_auto(kind: LossKind) -> tuple[Mechanism, ...]:
    """Return the mechanisms of ``kind`` that ``auto`` looks at, in their order."""
    return tuple(mechanism for mechanism in mechanisms_of(kind) if mechanism.name in AUTO_TRIES[kind])


def require_releasable(
    name: str, statistic: Statistic, kind: LossKind, *, allow_idealised: bool = False
) -> None:
    """Raise UsageError unless the mechanism ``name`` of ``kind`` can estimate ``statistic``.

    And unless its noise is exact, or ``allow_idealised``.
    """
    known: dict[str, tuple[Statistic, ...]] = {name: each.estimable for name, each in PUBLIC_COUNTS.items()}
    known |= {each.name: each.statistics for each in mechanisms_of(kind)}
    if statistic not in known.get(name, Statistic):
        raise UsageError(
            f"{name} cannot estimate the {statistic.value.replace('_', ' ')}",
            expected=", ".join(each for each in known if statistic in known[each]),
            todo="name another mechanism for it, or leave the statistic out",
        )
    if name not in PUBLIC_COUNTS and mechanism_named(name, kind).idealised and not allow_idealised:
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
