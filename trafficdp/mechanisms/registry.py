"""Every mechanism by its name, and how each is charged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks, block_accounting, in_blocks
from trafficdp.mechanisms.clip_user import CalibratedSuppression, SuppressionAccounting
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.names import CLIP_USER
from trafficdp.mechanisms.per_statistic_map import (
    MECHANISMS,
    PerStatisticMechanism,
    mechanism_named,
    mechanisms_of,
    tried_by_auto,
)
from trafficdp.mechanisms.pooling.add_remove_calibrated import CalibratedAddRemove
from trafficdp.mechanisms.pooling.calibrated import CalibratedFlat, CalibratedPooling
from trafficdp.mechanisms.protocol import Accounting, CalibratedMechanism, Columns, PublicFacts
from trafficdp.mechanisms.quantiles import CalibratedQuantiles
from trafficdp.model import OF_MAPS, ContributionBound, Counts, NeighbouringRelation, Statistic
from trafficdp.privacy.loss import LossKind

# Every accounting for one release: Laplace noise, blocks, and Clip-User where it is asked for by name.


def all_accountings(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    named: str = "best",
    thorough: bool = True,
) -> tuple[Accounting, ...]:
    """Return every accounting for the statistics of ``tolerance`` in all bins, in the order of BY_NAME.

    "blocks" only for means and vehicle means, or mean and variance; Clip-User only where it is ``named``.
    Not ``thorough``: blocks as for maps that are only looked at. Raises UsageError as ``accountings`` does.
    """
    found: tuple[Accounting, ...] = laplace_accountings(counts, bound, tolerance)
    if in_blocks(tolerance):
        found = (*found, block_accounting(counts, bound, tolerance, thorough=thorough))
    return (*found, SuppressionAccounting(counts, bound, tolerance)) if named == CLIP_USER else found


# All mechanisms by their names, for whoever plans and releases; what was calibrated, read back.
#
# ``MECHANISMS`` are those of one statistic (``per_statistic_map``), ``JOINT_MECHANISMS`` maps of one piece,
# of either relation.


__all__ = ["MECHANISMS", "mechanism_named", "mechanisms_of", "tried_by_auto"]
JOINT_MECHANISMS = {
    each.kind: each for each in (CalibratedPooling, CalibratedFlat, CalibratedAddRemove, CalibratedQuantiles)
}
"""Maps of one piece: all statistics and bins at once, of either kind of loss, by their names."""
PUBLIC_COUNTS = {
    name: each
    for name, each in JOINT_MECHANISMS.items()
    if each.relation is NeighbouringRelation.REPLACE_USER_VALUES and set(each.estimable) & set(OF_MAPS)
}
"""Those that can be named: where nothing about a vehicle is public there is one."""


class MechanismReader(Protocol):
    """A class of calibrated mechanisms: how they are read back."""

    def from_facts(self, facts: Mapping[str, Any], public: PublicFacts) -> CalibratedMechanism:
        """Return the calibrated mechanism that its ``to_facts`` wrote, on the ``public`` facts of then."""

    def from_published(
        self, facts: Mapping[str, Any], columns: Columns, public: PublicFacts
    ) -> CalibratedMechanism:
        """Return that of the numbered bins from the manifest's facts and the published columns."""


KINDS: dict[str, MechanismReader] = {
    "blocks": CalibratedBlocks,
    "laplace": CalibratedLaplace,
    "suppressed": CalibratedSuppression,
    "mechanism": PerStatisticMechanism,
    **JOINT_MECHANISMS,
}


def names_of(kind: LossKind) -> tuple[str, ...]:
    """Return all names: of the mechanisms that count in ``kind``, and of maps of one piece."""
    return (*(mechanism.name for mechanism in mechanisms_of(kind)), *PUBLIC_COUNTS)


def require_together(names: Mapping[Statistic, str]) -> None:
    """Raise UsageError where a map of one piece is named for some of the statistics of ``names`` alone."""
    whole = sorted(JOINT_MECHANISMS.keys() & {*names.values()})
    if whole and len({*names.values()}) > 1:
        raise UsageError(
            f"{whole[0]} releases all statistics together",
            got=", ".join(f"{each.value}: {name}" for each, name in names.items()),
            todo="name it for all statistics, or for none",
        )


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


def calibrated_from_facts(
    facts: Mapping[str, Any], public: PublicFacts, columns: Columns | None = None
) -> CalibratedMechanism:
    """Return the calibrated mechanism that ``to_facts`` wrote, on what was ``public``.

    With ``columns`` that of a published release: these are its noise, ``facts`` what its manifest says.
    Raises UsageError for an unknown kind or columns that are not its own.
    """
    name = facts.get("kind")
    if not isinstance(name, str) or name not in KINDS:
        raise UsageError(
            "unknown kind of calibrated mechanism",
            got=str(name)[:40],
            expected="one of " + ", ".join(sorted(KINDS)),
        )
    if columns is None:
        return KINDS[name].from_facts(facts, public)
    return KINDS[name].from_published(facts, columns, public)
