"""The nodes of a stream as it is kept: what it holds, how it grows, and its state between two runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError, integer_between
from trafficdp.measurement.nodes import Nodes

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class SignedCounterBank(Nodes):
    """Noisy running sums that may get more bins, and can be written down."""

    def counts(self) -> IntArray:
        """Return how many elements every stream holds, shape (bins, levels). Public."""
        return self.count.reshape(self.bins, self.levels).copy()

    def terms(self) -> IntArray:
        """Return how many Laplace draws every sum carries, shape (bins, levels)."""
        _, needed, _ = self._needed()
        terms = needed.sum(axis=(1, 2)).reshape(self.bins, self.levels)
        return np.asarray(terms, dtype=np.int64)

    def grow(self, bins: int, scale: FloatArray) -> None:
        """Add empty bins at the end until there are ``bins``; ``scale`` as in the constructor, of the new."""
        new = integer_between(0, 2**40, more=bins - self.bins)
        more = SignedCounterBank(new, self.levels, self.arity, self.heights, scale)
        for name in ("count", "total", "parent", "noise", "drawn", "scale"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return copies of all arrays, and ``shape`` = (levels, arity, heights). Holds exact sums."""
        shape = np.array([self.levels, self.arity, self.heights], dtype=np.int64)
        names = ("count", "total", "parent", "noise", "drawn", "scale")
        return {"shape": shape, **{name: getattr(self, name).copy() for name in names}}

    @classmethod
    def from_state(cls, state: Mapping[str, npt.NDArray[np.generic]]) -> SignedCounterBank:
        """Return the bank that ``state`` was taken from. Raises UsageError for arrays that do not fit."""
        levels, arity, heights = (int(each) for each in state["shape"])
        streams = len(state["count"])
        slots = (streams, heights, arity - 1)
        fits = state["total"].shape == (streams,) and state["parent"].shape == (streams, heights)
        if streams % levels or not fits or state["noise"].shape != slots or state["drawn"].shape != slots:
            raise UsageError("the arrays of a counter do not fit together", expected="what state() gave")
        scale = np.asarray(state["scale"], dtype=np.float64).reshape(-1, levels)
        bank = cls(streams // levels, levels, arity, heights, scale)
        for name in ("count", "total", "parent", "noise"):
            setattr(bank, name, np.array(state[name], dtype=np.int64))
        bank.drawn = np.array(state["drawn"], dtype=np.bool_)
        return bank
