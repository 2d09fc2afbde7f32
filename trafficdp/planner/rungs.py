"""Every rung for one release: those of Laplace noise, blocks, and for mean and variance those of moments."""

from __future__ import annotations

from collections.abc import Mapping

from trafficdp.mechanisms.blocks.rung import BlockRung, blocks_of
from trafficdp.mechanisms.laplace.ladder import Rung, ladder
from trafficdp.mechanisms.mean_variance.block_rung import moment_block_rung
from trafficdp.mechanisms.mean_variance.rung import moments_rung
from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic

MOMENTS = {Statistic.MEAN, Statistic.VARIANCE}


def all_rungs(
    occupancy: Occupancy, bound: ContributionBound, tolerance: Mapping[Statistic, float]
) -> tuple[Rung, ...]:
    """Return every rung for releasing the statistics of ``tolerance`` in all bins, in the order of BY_NAME.

    Those of WITH_VARIANCES only where mean and variance are both released; clip_user is not one of them.
    Raises UsageError as ``ladder`` does.
    """
    plain = ladder(occupancy, bound, tolerance)
    blocks = blocks_of(occupancy, bound, tolerance)
    statistics = tuple(statistic for statistic in Statistic if statistic in tolerance)
    rungs: tuple[Rung, ...] = (*plain, BlockRung(blocks, occupancy.bins, statistics))
    if tolerance.keys() >= MOMENTS:
        rungs = (*rungs, moments_rung(occupancy, bound, tolerance))
        if len(tolerance) == len(MOMENTS):
            means = blocks_of(occupancy, bound, {Statistic.MEAN: tolerance[Statistic.MEAN]})
            own = moment_block_rung(means, occupancy, bound, tolerance[Statistic.VARIANCE])
            rungs = (*rungs, own)
    return rungs
