"""Where a mechanism's randomness comes from: exact for releases, seeded for experiments."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.noise import choice, secure
from trafficdp.noise.block import block_noise
from trafficdp.noise.gaussian import discrete_gaussian, simulated_discrete_gaussian
from trafficdp.sensitive import MeasureInput

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


Generator = np.random.Generator
"""What draws: named here, because only this package may name NumPy's."""


def generator(seed: int | tuple[int, ...]) -> Generator:
    """Return a NumPy generator seeded by one or more numbers: for simulations, never for what is released."""
    return np.random.default_rng(seed)


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
        """Return l-infinity block noise, shape (G,); see ``noise.block``."""


class SecureNoise:
    """OpenDP's samplers, fed by the operating system. The only source for releases."""

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Give ``sums`` to OpenDP's discrete Laplace: it adds exactly, and only then fits into 64 bits."""
        return secure.discrete_laplace(scale, sums)

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Give ``sums`` to OpenDP's discrete Gaussian: it adds exactly, and only then fits into 64 bits."""
        return discrete_gaussian(sd, sums)

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """Draw by OpenDP's exact discrete Laplace sampler."""
        return secure.discrete_laplace(scale)

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Draw by bits of the operating system and exact comparisons: rounding decides nothing."""
        return choice.draw(cost, weight, start, scale, runs, secure.bits, exact=True)

    def uniform_below(self, count: IntArray) -> IntArray:
        """Draw 62 random bits a number, anew beyond the last whole multiple of its range: no bias."""
        return secure.uniform_below(count)

    def discrete_gaussian(self, sd: FloatArray) -> IntArray:
        """Draw by OpenDP's exact discrete Gaussian sampler."""
        return discrete_gaussian(sd)

    def block(self, half_width: IntArray, block: IntArray, scale: FloatArray) -> IntArray:
        """Draw exactly, from OpenDP's discrete Laplace and random bits."""
        return block_noise(half_width, block, scale, secure.discrete_laplace, secure.uniform_below)


class _Drawn(Protocol):
    """A step or a selection of the measurement layer, which draws by itself."""

    def draw(self, source: NoiseSource, values: Any) -> IntArray:  # noqa: ANN401 - each has its own
        """Return noisy sums, or chosen numbers."""


class _Scores(Protocol):
    """A claimed choice of the measurement layer."""

    @property
    def scale(self) -> FloatArray:
        """One a coordinate."""


class SimulatedNoise:
    """Seeded NumPy noise: fast, repeatable, never for a release.

    It has the methods of ``measurement.sets.Measure`` and meters nothing. What ``SecureNoise``
    refuses it refuses too, and draws a hundred times as fast.
    """

    def __init__(self, seed: int) -> None:
        self.random = generator(seed)

    def measure(self, step: _Drawn, values: MeasureInput) -> IntArray:
        """Return noisy sums."""
        return step.draw(self, values)

    def select(self, ranks: _Drawn, values: npt.NDArray[Any]) -> IntArray:
        """Return quantiles."""
        return ranks.draw(self, values)

    def select_claimed(self, scores: _Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Return chosen positions."""
        return np.asarray(self.choose(cost, weight, start, scores.scale)[0])

    def charge_unverified(self, noise: object) -> None:
        """Meter nothing."""

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Add ``discrete_laplace``."""
        return sums + self.discrete_laplace(scale)

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Add ``discrete_gaussian``."""
        return sums + self.discrete_gaussian(sd)

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """Draw the difference of two geometric numbers with success probability 1 - exp(-1/scale)."""
        secure.require_scales(scale)
        with np.errstate(over="ignore"):
            success = -np.expm1(-1.0 / np.where(scale > 0, scale, 1.0))
        first, second = self.random.geometric(success), self.random.geometric(success)
        return np.where(scale > 0, first - second, 0).astype(np.int64)

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Draw by seeded bits; rounding decides where they fall beside a border."""
        return choice.draw(cost, weight, start, scale, runs, self.bits, exact=False)

    def bits(self, size: int) -> IntArray:
        """Return ``size`` uniform integers of 62 bits."""
        return self.random.integers(0, 2**choice.BITS, size, dtype=np.int64)

    def uniform_below(self, count: IntArray) -> IntArray:
        """Draw by the seeded generator."""
        return self.random.integers(0, count, dtype=np.int64)

    def discrete_gaussian(self, sd: FloatArray) -> IntArray:
        """Draw by rejection from the seeded generator, in floats."""
        return simulated_discrete_gaussian(self.random, sd)

    def block(self, half_width: IntArray, block: IntArray, scale: FloatArray) -> IntArray:
        """Draw the same law from the seeded generator."""

        def below(count: IntArray) -> IntArray:
            return self.random.integers(0, count, dtype=np.int64)

        return block_noise(half_width, block, scale, self.discrete_laplace, below)
