"""From an order to its Release over all bins, withheld ones included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.binning.mosaic import slot_facts_of
from trafficdp.errors import StoreDamagedError
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.recipe_column import RECIPE_COLUMNS
from trafficdp.privacy.release import BinStatus, Estimate, LedgerReference, Release
from trafficdp.release.order import Order
from trafficdp.sensitive.values import Values


def carry_out(order: Order, everything: Values, noise: NoiseSource, ledger: LedgerReference) -> Release:
    """Return the release of ``order`` over all bins of ``everything``, with noise from ``noise``.

    Raises StoreDamagedError when the bins are not those that the order was made for.
    """
    occupancy = everything.contributions.occupancy
    keep = occupancy.users_per_bin >= order.min_vehicles
    keep &= order.grid.may_publish(occupancy.cell, occupancy.slot)
    if not (
        np.array_equal(occupancy.cell[keep], order.cell) and np.array_equal(occupancy.slot[keep], order.slot)
    ):
        raise StoreDamagedError(
            "the data is not what the release was charged for",
            got=f"{int(keep.sum())} bins",
            expected=f"the {len(order.cell)} bins of the charge",
            todo="restore the newest complete backup of the store",
        )
    estimates = order.recipe.estimates(
        everything.select(keep),
        noise,
        interval_level=order.interval_level,
        uninformative_above=order.uninformative_above,
    )
    return assemble(order, occupancy, keep, estimates, ledger)


def assemble(
    order: Order,
    occupancy: Occupancy,
    keep: npt.NDArray[np.bool_],
    estimates: Mapping[Statistic, Estimate],
    ledger: LedgerReference,
) -> Release:
    """Return the release of ``order``: ``occupancy`` has all G bins, ``estimates`` those of ``keep``."""
    slots = np.unique(occupancy.slot)
    spread = {statistic: _spread(estimate, keep) for statistic, estimate in estimates.items()}
    return Release(
        id=order.release_id,
        created_at=order.created_at,
        grid=order.grid,
        bound=order.bound,
        display_unit=order.display_unit,
        interval_level=order.interval_level,
        min_vehicles=order.min_vehicles,
        cell=occupancy.cell,
        slot=occupancy.slot,
        status=bin_status(keep, [estimate.status for estimate in estimates.values()]),
        vehicles=occupancy.users_per_bin if order.publish_counts else None,
        fixes=occupancy.samples_per_bin if order.publish_counts else None,
        estimates=spread,
        slots=slot_facts_of(order.grid, slots),
        ledger=ledger,
        disclosure=order.disclosure,
    )


def bin_status(
    keep: npt.NDArray[np.bool_], statuses: Sequence[npt.NDArray[np.object_]]
) -> npt.NDArray[np.object_]:
    """Return the status of all G bins from the statuses of each statistic over the kept ones.

    WITHHELD where not kept, UNINFORMATIVE where every number is, RELEASED elsewhere.
    """
    useless = np.all([status == BinStatus.UNINFORMATIVE.value for status in statuses], axis=0)
    result = np.full(len(keep), BinStatus.WITHHELD.value, dtype=object)
    result[keep] = np.where(useless, BinStatus.UNINFORMATIVE.value, BinStatus.RELEASED.value)
    return result


def _spread(estimate: Estimate, keep: npt.NDArray[np.bool_]) -> Estimate:
    """Return the estimate over all bins: NaN, WITHHELD and such where ``keep`` is false."""

    def numbers(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        full = np.full(len(keep), np.nan)
        full[keep] = values
        return full

    def column(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        withheld = RECIPE_COLUMNS[name].withheld
        if withheld is None:
            return numbers(values)
        full = np.full(len(keep), withheld, dtype=np.int64)
        full[keep] = values
        return full

    status = np.full(len(keep), BinStatus.WITHHELD.value, dtype=object)
    status[keep] = estimate.status
    return Estimate(
        statistic=estimate.statistic,
        value=numbers(estimate.value),
        low=numbers(estimate.low),
        high=numbers(estimate.high),
        noise_scale=numbers(estimate.noise_scale),
        expected_error=numbers(estimate.expected_error),
        status=status,
        recipe={name: column(name, values) for name, values in estimate.recipe.items()},
    )
