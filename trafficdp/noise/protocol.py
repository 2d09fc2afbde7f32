"""What a source of noise can draw, and random names."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

# What a source of noise can draw; which there are: ``noise.source``.


FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class NoiseSource(Protocol):
    """Draws for all bins at once. Integer draws are exact in a release (see ``noise.secure``)."""

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Return ``sums`` plus independent z, P(z) proportional to exp(-|z|/scale); no noise for scale 0."""

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Return ``sums`` plus independent z, P(z) proportional to exp(-z^2/(2 sd^2)); none for sd 0."""

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """Return ``laplace`` of zeros."""

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Return drawn candidates as positions in ``cost``, shape (runs, G): ``noise.choice.draw``.

        P(i) is proportional to weight_i exp(-cost_i/scale_g) among the candidates
        ``start[g]:start[g + 1]`` of bin g; weight 0 is never drawn; scale 0 takes the first of least cost.
        """

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return independent uniform integers in 0..count-1, one for every entry of ``count``."""

    def discrete_gaussian(self, sd: FloatArray) -> IntArray:
        """Return ``gaussian`` of zeros."""

    def block(self, half_width: IntArray, block: IntArray, scale: FloatArray) -> IntArray:
        """Return l-infinity block noise, shape (G,); see ``noise.block.secure_block``."""


# Random names: they say nothing of what they name, and nobody guesses one.


TOKEN_BYTES = 32


def new_token() -> str:
    """Return 256 random bits of the operating system as 64 hexadecimal digits."""
    return os.urandom(TOKEN_BYTES).hex()
