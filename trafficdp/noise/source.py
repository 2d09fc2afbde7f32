"""Where a mechanism's randomness comes from: exact for releases, seeded for experiments."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.noise import secure, simulate

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class NoiseSource(Protocol):
    """Draws for all bins at once. Integer draws are exact in a release (see ``noise.secure``)."""

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """Return independent integers with P(z) proportional to exp(-|z|/scale); 0 for scale 0."""


class SecureNoise:
    """OpenDP's samplers, fed by the operating system. The only source for releases."""

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """See NoiseSource."""
        return secure.discrete_laplace(scale)


class SimulatedNoise:
    """Seeded NumPy noise: fast, repeatable, never for a release."""

    def __init__(self, seed: int) -> None:
        self.random = simulate.generator(seed)

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """See NoiseSource."""
        return simulate.discrete_laplace(self.random, scale)
