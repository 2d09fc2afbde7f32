"""Noise for experiments: fast, seeded, NOT for releases."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Generator = np.random.Generator
"""What draws: named here, because only this package may name NumPy's."""


def generator(seed: int | tuple[int, ...]) -> Generator:
    """Return a NumPy generator for simulations and tests; a tuple names one of many independent ones."""
    return np.random.default_rng(seed)


def discrete_laplace(random: np.random.Generator, scale: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return one draw for every entry of ``scale``: the law of ``noise.secure``, from floats.

    The difference of two geometric variables with success probability 1 - exp(-1/scale).
    """
    with np.errstate(over="ignore"):
        success = -np.expm1(-1.0 / np.where(scale > 0, scale, 1.0))
    first = random.geometric(success)
    second = random.geometric(success)
    return np.where(scale > 0, first - second, 0).astype(np.int64)


def bits(random: np.random.Generator, size: int) -> npt.NDArray[np.int64]:
    """Return ``size`` uniform integers of 62 bits."""
    return random.integers(0, 2**62, size, dtype=np.int64)


def uniform_below(random: np.random.Generator, count: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return uniform integers in 0..count-1, one for every entry."""
    return random.integers(0, count, dtype=np.int64)
