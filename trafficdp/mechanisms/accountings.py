"""Every accounting for one release: Laplace noise, blocks, and those that are asked for by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from trafficdp.mechanisms.blocks.calibrated import block_accounting, in_blocks
from trafficdp.mechanisms.clip_user.accounting import SuppressionAccounting
from trafficdp.mechanisms.consistent.calibrated import ConsistentAccounting
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.protocol import CLIP_USER, CONSISTENT, Accounting
from trafficdp.model import ContributionBound, Counts, Statistic

NAMED: dict[str, type[SuppressionAccounting | ConsistentAccounting]] = {
    CLIP_USER: SuppressionAccounting,
    CONSISTENT: ConsistentAccounting,
}
"""Not always looked at."""


@runtime_checkable
class Explained(Protocol):
    """An accounting that says in one sentence what it buys."""

    def in_words(self) -> str:
        """Return the sentence."""


def all_accountings(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    named: str = "best",
    thorough: bool = True,
) -> tuple[Accounting, ...]:
    """Return every accounting for the statistics of ``tolerance`` in all bins, in the order of BY_NAME.

    "blocks" only for means and vehicle means, or mean and variance; one of NAMED only where it is ``named``.
    Not ``thorough``: blocks as for maps that are only looked at. Raises UsageError as ``accountings`` does.
    """
    found: tuple[Accounting, ...] = laplace_accountings(counts, bound, tolerance)
    if in_blocks(tolerance):
        found = (*found, block_accounting(counts, bound, tolerance, thorough=thorough))
    return (*found, NAMED[named](counts, bound, tolerance)) if named in NAMED else found
