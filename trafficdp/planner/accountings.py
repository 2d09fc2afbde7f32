"""Every accounting for one release: Laplace noise, and blocks."""

from __future__ import annotations

from collections.abc import Mapping

from trafficdp.mechanisms.blocks.accounting import BlockAccounting, blocks_of
from trafficdp.mechanisms.laplace.accountings import Accounting, laplace_accountings
from trafficdp.mechanisms.mean_variance.block_accounting import moment_block_accounting
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic

MOMENTS = {Statistic.MEAN, Statistic.VARIANCE}


def all_accountings(
    counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]
) -> tuple[Accounting, ...]:
    """Return every accounting for the statistics of ``tolerance`` in all bins, in the order of BY_NAME.

    Those of WITH_VARIANCES only where mean and variance are all there is; clip_user is not one of them.
    Raises UsageError as ``accountings`` does.
    """
    plain = laplace_accountings(counts, bound, tolerance)
    blocks = blocks_of(counts, bound, tolerance)
    statistics = tuple(statistic for statistic in Statistic if statistic in tolerance)
    accountings: tuple[Accounting, ...] = (*plain, BlockAccounting(blocks, counts.bins, statistics))
    if tolerance.keys() == MOMENTS:
        means = blocks_of(counts, bound, {Statistic.MEAN: tolerance[Statistic.MEAN]})
        own = moment_block_accounting(means, counts, bound, tolerance[Statistic.VARIANCE])
        accountings = (*accountings, own)
    return accountings
