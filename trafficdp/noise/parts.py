"""OpenDP's samplers on all processors: draws of a vector are independent, so its parts are drawn at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

AT_ONCE = 1 << 14
"""Draws of a part: about a third of a second of a processor."""

IntArray = npt.NDArray[np.int64]


def noisy(sampler: Any, sums: IntArray) -> IntArray:  # noqa: ANN401 - OpenDP carries no types
    """Return what the measurement ``sampler`` makes of ``sums`` (n,): the same law as of all in one call.

    The library draws outside Python's lock, so that threads share the work.
    """
    parts = np.array_split(sums, max(1, -(-len(sums) // AT_ONCE)))
    if len(parts) == 1:
        return _drawn(sampler, sums)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return np.concatenate(list(threads.map(lambda part: _drawn(sampler, part), parts)))


def _drawn(sampler: Any, sums: IntArray) -> IntArray:  # noqa: ANN401
    return np.asarray(sampler(sums), dtype=np.int64)
