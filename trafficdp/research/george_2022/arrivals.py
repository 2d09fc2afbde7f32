"""One stream of samples in the order of arrival: whose they are is public, what they say is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.rank import rank_within
from trafficdp.errors import UsageError
from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.withhold import Elements, WithholdRelease

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrivals:
    """Sample t comes from vehicle ``user[t]`` (0..users-1) and says ``value[t]`` (whole steps, 0..steps).

    ``users`` and ``samples`` are the declared most vehicles and most samples of a vehicle; ``steps`` is U/q.
    Raises UsageError when an arrival is outside of what was declared.
    """

    user: IntArray
    value: IntArray = field(repr=False)
    users: int
    samples: int
    steps: int

    def __post_init__(self) -> None:
        fits = len(self.user) == len(self.value) and self.users >= 1 and self.samples >= 1 and self.steps >= 1
        if fits and len(self.user):
            fits = (
                int(self.user.min()) >= 0
                and int(self.user.max()) < self.users
                and int(self.value.min()) >= 0
                and int(self.value.max()) <= self.steps
                and int(np.bincount(self.user).max()) <= self.samples
            )
        if not fits:
            raise UsageError(
                "a stream is not what was declared",
                expected=f"0..{self.steps} steps, at most {self.users} vehicles x {self.samples} samples",
            )

    def __len__(self) -> int:
        return len(self.user)

    @cached_property
    def rank(self) -> IntArray:
        """M_u: which sample of its vehicle each one is, 1, 2, ..., shape (T,)."""
        return rank_within(self.user) + 1

    @cached_property
    def elements(self) -> Elements:
        """What exponential withhold-release makes of the stream."""
        return WithholdRelease(self.users).append(self.user, self.value)

    def running_mean(self) -> FloatArray:
        """Return the exact mean of the first t samples, t = 1..T, in steps. Never published."""
        return np.asarray(np.cumsum(self.value) / np.arange(1, len(self) + 1))


class ArrivalOrder(StrEnum):
    """The four orders of the experiments."""

    ROUND_ROBIN = "round robin"
    CONTIGUOUS = "contiguous"
    RANDOM = "random"
    DOMINATING = "one dominating"


def arrival_order(order: ArrivalOrder, users: int, samples: int, source: NoiseSource) -> IntArray:
    """Return whose sample comes when, for ``users`` vehicles of ``samples`` samples each.

    DOMINATING: vehicle 0 sends all of its samples before any other comes; the others, in turn, send a
    sixteenth (at least one) each. RANDOM takes a uniform order from ``source``.
    """
    if order is ArrivalOrder.CONTIGUOUS:
        return np.repeat(np.arange(users), samples)
    if order is ArrivalOrder.DOMINATING:
        rest = np.tile(np.arange(1, users), max(1, samples // 16))
        return np.concatenate([np.zeros(samples, dtype=np.int64), rest])
    turns = np.tile(np.arange(users), samples)
    if order is ArrivalOrder.RANDOM:
        keys = source.uniform_below(np.full(len(turns), 2**60, dtype=np.int64))
        turns = turns[np.argsort(keys, kind="stable")]
    return turns
