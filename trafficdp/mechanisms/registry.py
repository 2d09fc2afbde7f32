"""Every mechanism by its name, and how each is charged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trafficdp.errors import UsageError
from trafficdp.mechanisms import clip_user, per_statistic_map, protocol, quantiles
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks, block_accounting, blocks_can_release
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.names import CLIP_USER
from trafficdp.mechanisms.pooling.add_remove_calibrated import CalibratedAddRemove
from trafficdp.mechanisms.pooling.calibrated import CalibratedCityWide, CalibratedPooling
from trafficdp.model import OF_MAPS, ContributionBound, Counts, NeighbouringRelation, Statistic
from trafficdp.privacy.loss import LossKind

# Every accounting for one release: Laplace noise, blocks, and Clip-User where it is asked for by name.


def all_accountings(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    accounting: str = "best",
    thorough: bool = True,
) -> tuple[protocol.Accounting, ...]:
    """Return every accounting for the statistics of ``tolerance`` in all bins, from public counts.

    ``tolerance`` maps each statistic to the error that is aimed at, in its unit. "blocks" is there for means
    and vehicle means, or mean and variance; Clip-User's only where ``accounting`` names it. Not ``thorough``:
    a quicker and coarser search for blocks. Raises UsageError when there is no bin, no statistic, or a
    tolerance is not positive.
    """
    found: tuple[protocol.Accounting, ...] = laplace_accountings(counts, bound, tolerance)
    if blocks_can_release(tolerance):
        found = (*found, block_accounting(counts, bound, tolerance, thorough=thorough))
    if accounting == CLIP_USER:
        found = (*found, clip_user.SuppressionAccounting(counts, bound, tolerance))
    return found


# All mechanisms by their names, for whoever plans and releases; what was calibrated, read back.
#
# ``per_statistic_map.MECHANISMS`` are those of one statistic, ``JOINT_MECHANISMS`` maps of one piece, of
# either relation.


JOINT_MECHANISMS = {
    each.kind: each
    for each in (CalibratedPooling, CalibratedCityWide, CalibratedAddRemove, quantiles.CalibratedQuantiles)
}
"""Maps of one piece: all statistics and bins at once, of either kind of loss, by their names."""
PUBLIC_COUNTS = {
    name: each
    for name, each in JOINT_MECHANISMS.items()
    if each.relation is NeighbouringRelation.REPLACE_USER_VALUES and set(each.estimable) & set(OF_MAPS)
}
"""Those that can be named: where nothing about a vehicle is public there is one."""


class MechanismReader(Protocol):
    """A class of calibrated mechanisms that can be rebuilt from stored or published facts."""

    def from_facts(
        self, facts: Mapping[str, Any], public: protocol.PublicFacts
    ) -> protocol.CalibratedMechanism:
        """Return the calibrated mechanism that its ``to_facts`` wrote, on the same ``public`` facts."""

    def from_published(
        self, facts: Mapping[str, Any], columns: protocol.Columns, public: protocol.PublicFacts
    ) -> protocol.CalibratedMechanism:
        """Rebuild the mechanism of a published release from manifest facts and published columns."""


KINDS: dict[str, MechanismReader] = {
    "blocks": CalibratedBlocks,
    "laplace": CalibratedLaplace,
    "suppressed": clip_user.CalibratedSuppression,
    "mechanism": per_statistic_map.PerStatisticMechanism,
    **JOINT_MECHANISMS,
}


def names_of(kind: LossKind) -> tuple[str, ...]:
    """Return the names of all mechanisms for losses of ``kind``, per statistic first, then joint ones."""
    return (*(mechanism.name for mechanism in per_statistic_map.mechanisms_of(kind)), *PUBLIC_COUNTS)


def require_together(names: Mapping[Statistic, str]) -> None:
    """Raise UsageError where a joint mechanism is named for only some of the statistics of ``names``."""
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
    """Raise UsageError unless mechanism ``name`` can estimate ``statistic`` with a loss of ``kind``.

    Also raised where its noise has no exact sampler, unless ``allow_idealised``.
    """
    known: dict[str, tuple[Statistic, ...]] = {name: each.estimable for name, each in PUBLIC_COUNTS.items()}
    known |= {each.name: each.statistics for each in per_statistic_map.mechanisms_of(kind)}
    if statistic not in known.get(name, Statistic):
        raise UsageError(
            f"{name} cannot estimate the {statistic.value.replace('_', ' ')}",
            expected=", ".join(each for each in known if statistic in known[each]),
            todo="name another mechanism for it, or leave the statistic out",
        )
    if (
        name not in PUBLIC_COUNTS
        and per_statistic_map.mechanism_named(name, kind).idealised
        and not allow_idealised
    ):
        raise UsageError(
            f"{name} has no exact sampler: its noise is idealised",
            todo=f"release it with `trafficdp release --allow-idealised-noise {name}`, which the manifest "
            "records, or choose another mechanism",
        )


def calibrated_from_facts(
    facts: Mapping[str, Any], public: protocol.PublicFacts, columns: protocol.Columns | None = None
) -> protocol.CalibratedMechanism:
    """Rebuild a calibrated mechanism from what ``to_facts`` wrote and the ``public`` facts it was made on.

    With ``columns`` it is rebuilt from a published release: ``facts`` are from its manifest, ``columns`` hold
    its noise. Raises UsageError for an unknown kind or columns of another mechanism.
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
