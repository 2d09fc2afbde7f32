"""The open window of a stream: records of steps that are not over, and which instants were met already.

Memory is bounded by what vehicles report within one step and the lateness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
COLUMNS = ("step", "bin", "vehicle", "count", "total", "squares")


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass
class StreamWindow:
    """Sums of accepted records by (step, bin, vehicle), and (vehicle, instant) of every one that was on time.

    ``rows``: COLUMNS, shape (R,) each; ``seen_vehicle``, ``seen_time_us``: shape (T,); numbers of vehicles
    are dense.
    """

    rows: dict[str, IntArray] = field(default_factory=lambda: {name: _none() for name in COLUMNS})
    seen_vehicle: IntArray = field(default_factory=_none)
    seen_time_us: IntArray = field(default_factory=_none)

    def repeated(self, vehicle: IntArray, time_us: IntArray, newest_us: IntArray) -> BoolArray:
        """Return which records have the (vehicle, instant) of an earlier one, in the window or among them.

        ``newest_us`` (n,): the vehicle's newest instant before these records. Only records that are not newer
        are looked up in the window.
        """
        order = np.lexsort((time_us, vehicle))
        same = (vehicle[order[1:]] == vehicle[order[:-1]]) & (time_us[order[1:]] == time_us[order[:-1]])
        result = np.zeros(len(vehicle), dtype=np.bool_)
        result[order[1:]] = same
        result |= time_us == newest_us
        asked = np.flatnonzero(~result & (time_us < newest_us))
        if len(asked):
            result[asked] = self._met(vehicle[asked], time_us[asked])
        return result

    def _met(self, vehicle: IntArray, time_us: IntArray) -> BoolArray:
        near = np.isin(self.seen_vehicle, np.unique(vehicle))
        vehicles = np.concatenate([self.seen_vehicle[near], vehicle])
        times = np.concatenate([self.seen_time_us[near], time_us])
        old = len(vehicles) - len(vehicle)
        order = np.lexsort((times, vehicles))
        fresh = np.append(
            True,
            (vehicles[order[1:]] != vehicles[order[:-1]]) | (times[order[1:]] != times[order[:-1]]),
        )
        # the sort is stable: what was met comes first in its group
        first = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
        met = np.empty(len(order), dtype=np.bool_)
        met[order] = order[first] < old
        return met[old:]

    def meet(self, vehicle: IntArray, time_us: IntArray) -> None:
        """Remember records that were on time."""
        self.seen_vehicle = np.concatenate([self.seen_vehicle, vehicle])
        self.seen_time_us = np.concatenate([self.seen_time_us, time_us])

    def add(self, rows: Mapping[str, IntArray]) -> None:
        """Add accepted records, one row each or summed already: COLUMNS, all of shape (n,)."""
        both = {name: np.concatenate([self.rows[name], rows[name]]) for name in COLUMNS}
        order = np.lexsort((both["vehicle"], both["bin"], both["step"]))
        if not len(order):
            return
        step, bin_, vehicle = (both[name][order] for name in COLUMNS[:3])
        fresh = np.append(
            True, (step[1:] != step[:-1]) | (bin_[1:] != bin_[:-1]) | (vehicle[1:] != vehicle[:-1])
        )
        first = np.flatnonzero(fresh)
        summed = {name: np.add.reduceat(both[name][order], first) for name in COLUMNS[3:]}
        self.rows = {"step": step[first], "bin": bin_[first], "vehicle": vehicle[first], **summed}

    def take(self, step: int, seen_before_us: int) -> dict[str, IntArray]:
        """Remove and return the rows of ``step``; forget instants before ``seen_before_us``."""
        here = self.rows["step"] == step
        taken = {name: values[here] for name, values in self.rows.items()}
        self.rows = {name: values[~here] for name, values in self.rows.items()}
        kept = self.seen_time_us >= seen_before_us
        self.seen_vehicle, self.seen_time_us = self.seen_vehicle[kept], self.seen_time_us[kept]
        return taken

    def held(self, vehicles: int) -> IntArray:
        """Return how many accepted records of every vehicle are in the window, shape (vehicles,)."""
        held = np.zeros(vehicles, dtype=np.int64)
        np.add.at(held, self.rows["vehicle"], self.rows["count"])
        return held

    def state(self) -> dict[str, IntArray]:
        """Return the arrays. They hold exact sums: never publish."""
        return {**self.rows, "seen_vehicle": self.seen_vehicle, "seen_time_us": self.seen_time_us}

    @classmethod
    def from_state(cls, state: Mapping[str, npt.NDArray[np.generic]]) -> StreamWindow:
        """Return the window that ``state`` was taken from."""
        arrays = {name: np.array(values, dtype=np.int64) for name, values in state.items()}
        rows = {name: arrays[name] for name in COLUMNS}
        return cls(rows, arrays["seen_vehicle"], arrays["seen_time_us"])
