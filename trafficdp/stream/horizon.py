"""The time of a stream: publication steps, and when a step is over.

The horizon is the grid's period, cut into steps of equal length from its first instant. The stream's *clock*
is the latest instant that any record has borne; the *watermark* is ``lateness`` behind it. A step is over
when the watermark has passed its end: then it is published, and a record of it that comes afterwards is late.
All of this is decided by times, which are public.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from trafficdp.arrays import IntArray
from trafficdp.binning.places import slots_of
from trafficdp.errors import ConfigError
from trafficdp.measurement.nodes import signed_nodes_touched
from trafficdp.model import Grid
from trafficdp.stream.tree import Tree, TreeKind

MINUTE_US = 60 * 1_000_000
MOST_STEPS = 2**20
ARITIES = (3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 25, 31)
_SAMPLE_US = 15 * MINUTE_US
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Horizon:
    """Steps 0..``steps`` - 1 of ``step_us`` microseconds from ``origin_us`` (since 1970 UTC).

    ``elements`` is the most steps in which one bin can have records: what its tree must hold.
    """

    origin_us: int
    step_us: int
    steps: int
    lateness_us: int
    elements: int

    @classmethod
    def of(cls, grid: Grid, publish_every: int, lateness: int) -> Horizon:
        """Return the horizon of ``grid`` with steps and lateness in minutes.

        Raises ConfigError for more than MOST_STEPS steps.
        """
        origin, end = (second * 1_000_000 for second in grid.period.utc_seconds)
        step = publish_every * MINUTE_US
        steps = -(-(end - origin) // step)
        if steps > MOST_STEPS:
            raise ConfigError(
                "the stream would publish too often",
                got=f"{steps} times over the period",
                expected=f"at most {MOST_STEPS}",
                todo="choose a longer publish_every or a shorter period",
            )
        return cls(origin, step, steps, lateness * MINUTE_US, _elements(grid, origin, step, steps, end))

    @property
    def end_us(self) -> int:
        """Instant at which the last step ends, in microseconds since 1970 UTC."""
        return self.origin_us + self.steps * self.step_us

    def tree(self) -> tuple[int, int]:
        """Return the (arity, heights) of the best signed tree for a vehicle with records in every step.

        Best is the least product of the mean number of nodes that hold an element and the root of the mean
        variance of a running sum.
        """
        at = np.arange(1, min(self.elements, 1 << 16) + 1)
        found = []
        for arity in ARITIES:
            tree = Tree(arity, TreeKind.SIGNED)
            heights = tree.heights(self.elements)
            touched = signed_nodes_touched(at, arity, heights).mean()
            found.append((float(touched * np.sqrt(tree.variance(at, self.elements).mean())), arity, heights))
        _, arity, heights = min(found)
        return arity, heights

    def step_of(self, time_us: IntArray) -> IntArray:
        """Return the number of the step that holds each instant ``time_us``, shape (n,).

        Instants outside the horizon have numbers below 0, or of ``steps`` and more.
        """
        return np.asarray((time_us - self.origin_us) // self.step_us, dtype=np.int64)

    def steps_over(self, clock_us: IntArray) -> IntArray:
        """Return how many steps are over at each instant ``clock_us``, shape (n,).

        A step is over ``lateness_us`` after its end. Instants are in microseconds since 1970 UTC, shape (n,).
        """
        passed = (clock_us - self.lateness_us - self.origin_us) // self.step_us
        return np.asarray(np.clip(passed, 0, self.steps), dtype=np.int64)

    def end_of(self, step: int) -> datetime:
        """Return the instant (UTC) at which ``step`` ends."""
        return _EPOCH + timedelta(microseconds=self.origin_us + (step + 1) * self.step_us)


def _elements(grid: Grid, origin: int, step: int, steps: int, end: int) -> int:
    """Return the most steps in which any one time slot occurs.

    Slots are looked up every quarter of an hour and at both ends of every step.
    """
    inner = np.arange(0, step, _SAMPLE_US, dtype=np.int64)
    offsets = np.append(inner, step - 1)
    found = Counter[int]()
    # in parts, so that a year of minutes does not fill the memory
    for first in range(0, steps, 1 << 16):
        number = np.arange(first, min(steps, first + (1 << 16)), dtype=np.int64)
        instants = (origin + number[:, None] * step + offsets).ravel()
        which = np.repeat(number, len(offsets))
        inside = instants < end
        slot = slots_of(instants[inside], grid.slot_kind, grid.period.time_zone, grid.day_parts)
        pairs = np.unique(np.column_stack([slot, which[inside]]), axis=0)
        found.update(pairs[:, 0].tolist())
    return max(found.values(), default=1)
