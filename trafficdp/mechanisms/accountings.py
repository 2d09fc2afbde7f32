"""Every accounting for one release: Laplace noise, blocks, and Clip-User where it is asked for by name."""

from __future__ import annotations

from collections.abc import Mapping

from trafficdp.mechanisms.blocks.calibrated import block_accounting, in_blocks
from trafficdp.mechanisms.clip_user.clip_user import SuppressionAccounting
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.protocol import CLIP_USER, Accounting
from trafficdp.model import ContributionBound, Counts, Statistic


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
