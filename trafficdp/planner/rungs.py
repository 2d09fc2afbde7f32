"""Every rung for one release: those of Laplace noise, blocks, and for mean and variance those of moments."""

from __future__ import annotations

from collections.abc import Mapping

from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.planner.block_rung import BlockRung, blocks_of
from trafficdp.planner.ladder import Rung, ladder
from trafficdp.planner.moment_block_rung import moment_block_rung
from trafficdp.planner.moments_rung import moments_rung

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
