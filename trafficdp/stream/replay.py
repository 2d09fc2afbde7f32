"""The pace of a replay: how far stream time has come when it runs SPEED times as fast as the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trafficdp.errors import UsageError


@dataclass
class Pace:
    """``speed`` seconds of stream time a second; 0: as fast as possible. Begins when first asked.

    Raises UsageError for a speed below 0.
    """

    speed: float
    clock: Callable[[], float] = time.monotonic
    _began: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.speed < float("inf"):
            raise UsageError("a replay cannot run at this speed", got=self.speed, expected="0 or more")

    def due_us(self, first_us: int) -> int | None:
        """Return the instant up to which records are due, the first being at ``first_us``; None: all are."""
        if not self.speed:
            return None
        if self._began is None:
            self._began = self.clock()
        return first_us + int((self.clock() - self._began) * self.speed * 1e6)
