"""Where a mechanism's randomness comes from: exact for releases, seeded for experiments.

Noise for releases are OpenDP's exact samplers on integers, fed by the operating system: the only randomness
of a release enters here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.noise import choice
from trafficdp.noise.block import block_noise
from trafficdp.sensitive import MeasureInput

LARGEST_SCALE = float(2**55)
"""Above this a draw could leave 64 bits; the caller coarsens its lattice instead."""
MOST_DISTINCT_SCALES = 5_000
"""Building a sampler takes about 0.1 ms; more distinct scales than this are rounded up together."""
AT_ONCE = 1 << 14
"""Draws of a part, about a third of a second of a processor: draws are independent, so parts go at once."""


Generator = np.random.Generator
"""What draws: named here, because only this package may name NumPy's."""


def generator(seed: int | tuple[int, ...]) -> Generator:
    """Return a NumPy generator seeded by one or more numbers: for simulations, never for what is released."""
    return np.random.default_rng(seed)


def _noisy(make: Callable[..., Any], distance: Any, scale: FloatArray, sums: IntArray) -> IntArray:  # noqa: ANN401
    """Return ``sums`` plus one independent draw for every ``scale`` above 0, in its shape.

    ``make`` is OpenDP's of a measurement, for vectors at the ``distance`` of its law. The library draws
    outside Python's lock, so that threads share the work: the law is that of all in one call. Raises as
    ``require_scales``.
    """
    from opendp.domains import atom_domain, vector_domain
    from opendp.mod import enable_features

    require_scales(scale)
    enable_features("contrib")
    vectors = vector_domain(atom_domain(T="i64"))
    noise = sums.astype(np.int64).ravel()
    distinct, which = np.unique(scale.ravel(), return_inverse=True)
    order = np.argsort(which, kind="stable")
    sizes = np.bincount(which, minlength=len(distinct))
    ends = np.cumsum(sizes)
    for value, start, end in zip(distinct.tolist(), ends - sizes, ends, strict=True):
        if value > 0:
            here, sampler = order[start:end], make(vectors, distance, scale=value)
            parts = np.array_split(noise[here], -(-len(here) // AT_ONCE))
            if len(parts) == 1:
                noise[here] = sampler(parts[0])
            else:
                with ThreadPoolExecutor(os.cpu_count()) as threads:
                    noise[here] = np.concatenate(list(threads.map(sampler, parts)), dtype=np.int64)
    return noise.reshape(scale.shape)


def require_scales(scale: FloatArray) -> None:
    """Raise UsageError for a negative, infinite or missing scale, or one above LARGEST_SCALE."""
    valid = np.isfinite(scale) & (scale >= 0) & (scale <= LARGEST_SCALE)
    if not bool(valid.all()):
        raise UsageError("noise scale is out of range", expected="0 <= scale <= 2^55")


def group_scales(scale: FloatArray) -> FloatArray:
    """Return scales >= the given ones that take few distinct values, so that drawing stays fast.

    Nothing changes up to MOST_DISTINCT_SCALES distinct values; beyond, scales are rounded up to 10
    significant bits (at most 0.2 % more noise), never down.
    """
    if len(np.unique(scale)) <= MOST_DISTINCT_SCALES:
        return scale
    mantissa, exponent = np.frexp(scale)
    return np.asarray(np.ldexp(np.ceil(mantissa * 1024) / 1024, exponent))


def bits(size: int) -> IntArray:
    """Return ``size`` independent uniform integers of 62 bits from the operating system."""
    words = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
    return (words >> np.uint64(2)).astype(np.int64)


class NoiseSource(Protocol):
    """Draws for all bins at once. Integer draws are exact in a release."""

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Return ``sums`` plus independent discrete Laplace noise z, P(z) proportional to exp(-|z|/scale).

        Elementwise; no noise where ``scale`` is 0.
        """

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Return ``sums`` plus independent discrete Gaussian noise z, P(z) proportional to exp(-z^2/(2
        sd^2)).

        Elementwise; no noise where ``sd`` is 0.
        """

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """Return independent discrete Laplace noise of ``scale``, elementwise; 0 for scale 0."""

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Return candidates drawn by exponential mechanisms, as positions in ``cost``, shape (runs, G).

        P(i) is proportional to weight_i exp(-cost_i/scale_g) among the candidates ``start[g]:start[g + 1]``
        of bin g; weight 0 is never drawn; scale 0 takes the first of least cost.
        """

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return independent uniform integers in 0..count-1, one for every entry of ``count``."""

    def discrete_gaussian(self, sd: FloatArray) -> IntArray:
        """Return independent discrete Gaussian noise of standard deviation ``sd``, elementwise.

        0 for sd 0.
        """

    def block(self, half_width: IntArray, block: IntArray, scale: FloatArray) -> IntArray:
        """Return integer block (l-infinity) noise for every statistic, shape (G,).

        Arguments as of ``block_noise``.
        """


class SecureNoise:
    """OpenDP's samplers, fed by the operating system. The only source for releases.

    They add in big integers and saturate at 64 bits afterwards, which is post-processing. Laws are exactly
    those of the floats as given. Scales and standard deviations are refused as by ``require_scales``.
    """

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Return ``sums`` plus discrete Laplace noise by OpenDP's exact sampler, elementwise."""
        from opendp.measurements import make_laplace
        from opendp.metrics import l1_distance

        return _noisy(make_laplace, l1_distance(T="i64"), scale, sums)

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Return ``sums`` plus discrete Gaussian noise by OpenDP's exact sampler, elementwise."""
        from opendp.measurements import make_gaussian
        from opendp.metrics import l2_distance

        return _noisy(make_gaussian, l2_distance(T="f64"), sd, sums)

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """Return discrete Laplace noise of ``scale`` by OpenDP's exact sampler, elementwise."""
        return self.laplace(np.zeros(scale.shape, dtype=np.int64), scale)

    def discrete_gaussian(self, sd: FloatArray) -> IntArray:
        """Return discrete Gaussian noise of standard deviation ``sd`` by OpenDP's exact sampler,
        elementwise.
        """
        return self.gaussian(np.zeros(sd.shape, dtype=np.int64), sd)

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Return candidates drawn exactly by exponential mechanisms, as positions in ``cost``, (runs, G).

        Bits of the operating system are compared exactly: rounding decides nothing.
        """
        return choice.draw(cost, weight, start, scale, runs, bits, exact=True)

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return independent uniform whole numbers in 0..``count`` - 1, exactly, from bits of the operating
        system.

        62 bits a number, drawn anew beyond the last whole multiple of its range. Raises UsageError unless
        every count is from 1 to 2^61.
        """
        flat = np.asarray(count, dtype=np.int64).ravel()
        if flat.size and not (int(flat.min()) >= 1 and int(flat.max()) <= 2**61):
            raise UsageError("a range to draw from is out of range", expected="1 to 2^61 whole numbers")
        result = np.zeros(flat.shape, dtype=np.int64)
        usable = 2**62 // np.maximum(flat, 1) * flat
        left = np.arange(len(flat))
        while len(left):
            word = bits(len(left))
            result[left] = word % flat[left]
            left = left[word >= usable[left]]
        return result.reshape(np.shape(count))

    def block(self, half_width: IntArray, block: IntArray, scale: FloatArray) -> IntArray:
        """Return integer block noise, shape (G,), exact: from OpenDP's discrete Laplace and random bits."""
        return block_noise(half_width, block, scale, self.discrete_laplace, self.uniform_below)


class _Drawn(Protocol):
    """A step or a selection of the measurement layer, which draws by itself."""

    def draw(self, source: NoiseSource, values: Any) -> IntArray:  # noqa: ANN401 - each has its own
        """Return noisy sums of private ``values``, or selected numbers, with noise from ``source``."""


class _Scores(Protocol):
    """A claimed choice of the measurement layer."""

    @property
    def scale(self) -> FloatArray:
        """The scale of the exponential mechanism of every coordinate, shape (C,)."""


class SimulatedNoise:
    """Seeded NumPy noise: fast, repeatable, never for a release.

    It has the methods of ``measurement.sets.Measure`` and meters nothing. What ``SecureNoise``
    refuses it refuses too, and draws a hundred times as fast.
    """

    def __init__(self, seed: int) -> None:
        self.random = generator(seed)

    def measure(self, step: _Drawn, values: MeasureInput) -> IntArray:
        """Return the noisy sums of ``step`` over ``values``, shape (C,), without metering."""
        return step.draw(self, values)

    def select(self, ranks: _Drawn, values: npt.NDArray[Any]) -> IntArray:
        """Return one quantile for every coordinate, shape (C,), without metering."""
        return ranks.draw(self, values)

    def select_claimed(self, scores: _Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Return the positions drawn by exponential mechanisms, shape (C,), without metering."""
        return np.asarray(self.choose(cost, weight, start, scores.scale)[0])

    def charge_unverified(self, noise: object) -> None:
        """Do nothing: simulations meter no privacy loss."""

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Return ``sums`` plus simulated discrete Laplace noise, from the seeded generator."""
        return sums + self.discrete_laplace(scale)

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Return ``sums`` plus simulated discrete Gaussian noise, from the seeded generator."""
        return sums + self.discrete_gaussian(sd)

    def discrete_laplace(self, scale: FloatArray) -> IntArray:
        """Return simulated discrete Laplace noise of ``scale``: the difference of two geometric draws,
        elementwise.
        """
        require_scales(scale)
        with np.errstate(over="ignore"):
            success = -np.expm1(-1.0 / np.where(scale > 0, scale, 1.0))
        first, second = self.random.geometric(success), self.random.geometric(success)
        return np.where(scale > 0, first - second, 0).astype(np.int64)

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Return candidates drawn by exponential mechanisms from seeded bits, as positions, shape (runs, G).

        In floats: rounding may decide a draw at a border.
        """
        return choice.draw(cost, weight, start, scale, runs, self.bits, exact=False)

    def bits(self, size: int) -> IntArray:
        """Return ``size`` uniform whole numbers of 62 bits from the seeded generator."""
        return self.random.integers(0, 2**choice.BITS, size, dtype=np.int64)

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return uniform whole numbers in 0..``count`` - 1 from the seeded generator, elementwise."""
        return self.random.integers(0, count, dtype=np.int64)

    def discrete_gaussian(self, sd: FloatArray) -> IntArray:
        """Return simulated discrete Gaussian noise of standard deviation ``sd``, elementwise, in floats.

        By rejection from a discrete Laplace y of scale t = floor(sd) + 1, accepted with probability
        exp(-(|y|/sd - sd/t)^2 / 2) (Canonne, Kamath, Steinke 2020, Algorithm 3).
        """
        require_scales(sd)
        flat = sd.ravel()
        noise = np.zeros(flat.shape, dtype=np.int64)
        pending = np.flatnonzero(flat > 0)
        while len(pending):
            spread = flat[pending]
            scale = np.floor(spread) + 1
            success = -np.expm1(-1.0 / scale)
            proposal = self.random.geometric(success) - self.random.geometric(success)
            with np.errstate(over="ignore"):
                # not by spread^2, which is 0 where spread is tiny
                off = np.abs(proposal) / spread - spread / scale
                accepted = self.random.random(len(pending)) < np.exp(-(off**2) / 2)
            noise[pending[accepted]] = proposal[accepted]
            pending = pending[~accepted]
        return noise.reshape(sd.shape)

    def block(self, half_width: IntArray, block: IntArray, scale: FloatArray) -> IntArray:
        """Return integer block noise, shape (G,), from the seeded generator."""

        def below(count: IntArray) -> IntArray:
            return self.random.integers(0, count, dtype=np.int64)

        return block_noise(half_width, block, scale, self.discrete_laplace, below)
