"""Every accounting for one release: Laplace noise, and blocks."""

from __future__ import annotations

from collections.abc import Mapping

from trafficdp.mechanisms.blocks.accounting import block_accounting
from trafficdp.mechanisms.blocks.calibrated import in_blocks
from trafficdp.mechanisms.laplace.accountings import Accounting, laplace_accountings
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic


def all_accountings(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    thorough: bool = True,
) -> tuple[Accounting, ...]:
    """Return every accounting for the statistics of ``tolerance`` in all bins, in the order of BY_NAME.

    "blocks" only for means and vehicle means, or mean and variance; clip_user is not one of them.
    Not ``thorough``: blocks as for maps that are only looked at. Raises UsageError as ``accountings`` does.
    """
    found: tuple[Accounting, ...] = laplace_accountings(counts, bound, tolerance)
    if in_blocks(tolerance):
        found = (*found, block_accounting(counts, bound, tolerance, thorough=thorough))
    return found
