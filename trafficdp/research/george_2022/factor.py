"""Gaussian noise for running sums by a matrix factorisation, and in little memory.

Gaussian noise for running sums by a matrix factorisation, on whole numbers, under zCDP.

With A the lower triangular matrix of ones, a factor C (lower triangular, entries >= 0, positive diagonal)
and B = A C^-1: publish what follows from y = C x + z. Sums are A x + B z: unbiased, with variance
sd^2 times the row norms of B. Here C is rounded to whole multiples of 2^-bits, K = round(2^bits C), so that
y = K x + z is a vector of *integers*, z discrete Gaussian: what is claimed is exact. The decoder
A K^-1 y is post-processing, so that floats do no harm there.

*Privacy.* A vehicle that moves its elements, at places P, by at most W each moves y by at most
W |sum over P of K's columns| in l2, with equality when all move the same way as K >= 0; so
rho = W^2 s^2/(2 sd^2), s^2 the largest such squared norm over the places that can occur. y can be
given out row by row, and elements may be chosen having seen it (K is lower triangular; Denisov et al. 2022).

*Factors.* SQUARE ROOT: C C = A, Toeplitz with f_0 = 1, f_r = f_(r-1) (2 r - 1)/(2 r) (Henzinger, Upadhyay
2022; Fichtenberger et al. 2023). OPTIMISED: least mean squared error at one element a vehicle. With v > 0
and V = diag(v)^(1/2), X(v) = V^-1 (V A^T A V)^(1/2) V^-1 is C^T C of the best C at prices v;
v <- diag((V A^T A V)^(1/2)) goes to the optimum (Denisov et al. 2022).

*Many elements a vehicle* (square root): f falls, so the inner product of columns s < t,
sum over r <= n - t of f_r f_(r + t - s), falls in t and in t - s. The k-th place is at least k and two
are at least as far apart as their numbers, so places 1..k are worst. The same bound holds for every K whose
entries are at most those of the Toeplitz factor (``binned``).

The square root factor in little memory: old elements share coefficients, O(log n) numbers a stream.

Row t of the Toeplitz square root factor gives element s the coefficient f_(t - s), which hardly differs among
old neighbours. Here the past is cut into intervals that only ever merge; all elements of an interval get the
coefficient of its oldest one, the smallest. So K stays lower triangular, with entries in
0 .. floor(2^BITS f_(t - s)), and the price is that of the Toeplitz factor or less (``factor``). Two
neighbouring intervals merge once the smallest coefficient in both is at least ``share`` of the largest;
their number grows like log n / log(1/share^2). (Binning after Andersson and Pagh 2024, who bin the
noise's side of the factorisation.)

Encoder y_t = sum over intervals of coefficient x (sum of x inside) + z_t, in whole numbers. Decoder, with
the same intervals: w_t = (y_t - sum of coefficient x (sum of w inside)) / K_tt, and the running sum is the
sum of all w. Both need the interval sums only.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError, in_range, integer_between
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import ZCDP, round_up

BITS = 20
SETTLED = 1e-3
"""Relative change of all prices at which the optimised factor is taken as found."""
LONGEST = 4096
"""Dense factors are for streams of at most this many elements; ``binned`` has no such limit."""


class GaussianSums(Protocol):
    """Gaussian noise for the running sums of at most ``length`` elements."""

    @property
    def length(self) -> int:
        """The largest number of elements of a stream."""

    def squared_norm(self, elements: int) -> int:
        """Return the squared l2 sensitivity to a vehicle with ``elements`` elements, each changed by 1.

        In units of 2^-BITS squared.
        """

    def path(self, at: IntArray, sd: float, source: NoiseSource, runs: int = 1) -> FloatArray:
        """Return the noise of the running sums after ``at`` (K,) elements, shape (runs, K).

        ``sd`` is the noise's standard deviation on the lattice of 2^-BITS.
        """


def square_root_coefficients(length: int) -> FloatArray:
    """Return the first ``length`` coefficients of the square root of the running-sum matrix, as in the
    module.
    """
    ratio = np.arange(1, length)
    return np.concatenate([[1.0], np.cumprod((2 * ratio - 1) / (2 * ratio))])


def toeplitz_coefficients(length: int) -> IntArray:
    """Return the square root's coefficients as whole multiples of 2^-BITS, rounded down, shape (length,)."""
    return np.floor(np.ldexp(square_root_coefficients(length), BITS)).astype(np.int64)


def contiguous_squared_norm(coefficients: IntArray, elements: int) -> int:
    """Return the squared norm of the sum of the first ``elements`` columns of the Toeplitz matrix, exactly.

    ``coefficients`` are its first column.
    """
    running = np.concatenate([[0], np.cumsum(coefficients)])
    place = np.arange(1, len(coefficients) + 1)
    entry = running[place] - running[np.maximum(place - elements, 0)]
    # squares beyond 64 bits in long streams of many elements
    high, low = entry >> 20, entry & (2**20 - 1)
    parts = (high * high, 2 * high * low, low * low)
    return sum(int(part.sum()) << shift for part, shift in zip(parts, (40, 20, 0), strict=True))


def square_root_factor(length: int) -> DenseFactor:
    """Return the square-root factor of the running-sum matrix for ``length`` elements."""
    coefficients = toeplitz_coefficients(_short(length))
    gap = np.subtract.outer(np.arange(length), np.arange(length))
    return DenseFactor(np.where(gap >= 0, coefficients[np.maximum(gap, 0)], 0), toeplitz=True)


def optimised_factor(length: int, rounds: int = 60) -> DenseFactor:
    """Return the factor of the running-sum matrix with least mean squared error, for one element a vehicle.

    O(rounds n^3) for n = ``length``; fewer rounds when the prices have settled.
    """
    gram = np.tri(_short(length)).T @ np.tri(length)
    price = np.ones(length)
    for _ in range(rounds):
        root = np.sqrt(price)
        value, vector = np.linalg.eigh(root[:, None] * gram * root)
        square_root = (vector * np.sqrt(np.maximum(value, 0))) @ vector.T
        before, price = price, np.diag(square_root).copy()
        if bool(np.all(np.abs(price - before) <= SETTLED * price)):
            break
    root = np.sqrt(price)
    value, vector = np.linalg.eigh(root[:, None] * gram * root)
    target = ((vector * np.sqrt(np.maximum(value, 0))) @ vector.T) / root[:, None] / root
    # X = C^T C with C lower triangular: the Cholesky factor of X turned round
    upper = cholesky(target[::-1, ::-1])
    factor = upper[::-1, ::-1]
    rounded = np.floor(np.ldexp(np.maximum(factor, 0), BITS)).astype(np.int64)
    return DenseFactor(rounded)


@dataclass(frozen=True)
class DenseFactor:
    """K as a whole matrix, shape (n, n). Raises UsageError unless it is as the module says.

    ``toeplitz``: that K is Toeplitz with falling entries, so that several elements a vehicle can be priced.
    """

    matrix: IntArray
    toeplitz: bool = False

    def __post_init__(self) -> None:
        matrix = self.matrix
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 1
        if not (
            square
            and bool(np.all(np.diag(matrix) > 0))
            and bool(np.all(matrix >= 0))
            and not np.triu(matrix, 1).any()
        ):
            raise UsageError("this is not a factor", expected="lower triangular, entries >= 0, diagonal > 0")

    @property
    def length(self) -> int:
        """The largest number of elements of a stream."""
        return len(self.matrix)

    def squared_norm(self, elements: int) -> int:
        """Return the squared l2 sensitivity to a vehicle with ``elements`` elements, each changed by 1.

        Raises UsageError for several elements unless the factor is Toeplitz.
        """
        if elements == 1:
            columns = self.matrix.astype(np.object_) if self.matrix.max() >= 2**26 else self.matrix
            return max(int(total) for total in (columns**2).sum(axis=0))
        if not self.toeplitz:
            raise UsageError(
                "several elements a vehicle are not priced with this factor", expected="a Toeplitz factor"
            )
        return contiguous_squared_norm(self.matrix[:, 0], min(elements, self.length))

    @cached_property
    def decoder(self) -> FloatArray:
        """The matrix that turns the drawn noise into the noise of all running sums, shape (n, n)."""
        inverse = solve_triangular(self.matrix.astype(float), np.eye(self.length), lower=True)
        return np.asarray(np.cumsum(inverse, axis=0), dtype=np.float64)

    def mean_squared_error(self) -> float:
        """Return the mean over time of the noise variance of the sums, for one element of change 1 a vehicle.

        At noise with standard deviation equal to the sensitivity.
        """
        return float(self.squared_norm(1) * (self.decoder**2).sum() / self.length)

    def path(self, at: IntArray, sd: float, source: NoiseSource, runs: int = 1) -> FloatArray:
        """Return the noise of the running sums after ``at`` (K,) elements, shape (runs, K).

        ``sd`` on the lattice.
        """
        draws = source.discrete_gaussian(np.full(runs * self.length, sd)).reshape(runs, self.length)
        rows = np.concatenate([np.zeros((1, self.length)), self.decoder])[at]
        return np.asarray(draws @ rows.T, dtype=np.float64)

    def release(self, value: IntArray, sd: float, source: NoiseSource) -> FloatArray:
        """Return the noisy running sums of the private ``value`` (t,), decoded from integers with noise
        of ``sd``.
        """
        n = len(value)
        exact = self.matrix[:n, :n] @ np.asarray(value, dtype=np.int64)
        noisy = exact + source.discrete_gaussian(np.full(n, sd))
        return np.asarray(self.decoder[:n, :n] @ noisy, dtype=np.float64)


def gaussian_sd(sums: GaussianSums, width: int, elements: int, rho: ZCDP) -> float:
    """Return the least noise standard deviation at which a vehicle's loss is at most ``rho``.

    A vehicle has ``elements`` elements, each of which it changes by at most ``width``.
    """
    exact = Fraction(width**2 * sums.squared_norm(elements)) / (2 * rho.exact)
    sd = float(np.sqrt(float(exact)))
    while Fraction(sd) ** 2 < exact:
        sd = float(round_up(np.array(sd)))
    return sd


def gaussian_loss(sums: GaussianSums, width: int, elements: int, sd: float) -> ZCDP:
    """Return the rho that noise of ``sd`` costs a vehicle, rounded up.

    A vehicle has ``elements`` elements, each of which it changes by at most ``width``.
    """
    return ZCDP.at_least(Fraction(width**2 * sums.squared_norm(elements)) / (2 * Fraction(sd) ** 2))


def _short(length: int) -> int:
    return integer_between(1, LONGEST, length=length)


@dataclass(frozen=True)
class BinnedFactor:
    """The module's factor: ``length`` n, ``share`` between 0 and 1 (larger: less error, more intervals)."""

    length: int
    share: float = 0.9

    def __post_init__(self) -> None:
        integer_between(1, 2**26, length=self.length)
        in_range(0, 1, share=self.share)

    @cached_property
    def coefficients(self) -> IntArray:
        """The Toeplitz factor's coefficients as whole numbers, floor(2^BITS f_r), shape (n,)."""
        return toeplitz_coefficients(self.length)

    def merged(self, start: IntArray, end: int) -> IntArray:
        """Return the positions in ``start`` of the intervals that remain when neighbours of like weight are
        merged.

        ``start`` (I,) are the intervals' first elements, ascending; the last interval ends with ``end``. Of
        two merges that share an interval the older is made.
        """
        after = np.append(start[1:], end + 1)
        oldest = np.minimum(end + 1 - start, self.length - 1)
        youngest = end + 2 - after
        can = self.coefficients[oldest[:-1]] >= self.share * self.coefficients[youngest[1:]]
        place = np.arange(len(can))
        broken = np.maximum.accumulate(np.where(can, -1, place))
        chosen = can & ((place - broken) % 2 == 1)
        return np.flatnonzero(np.concatenate([[True], ~chosen]))

    def squared_norm(self, elements: int) -> int:
        """Return an upper bound of the squared l2 sensitivity to a vehicle with ``elements`` elements
        changed by 1.
        """
        return contiguous_squared_norm(self.coefficients, min(elements, self.length))

    def path(self, at: IntArray, sd: float, source: NoiseSource, runs: int = 1) -> FloatArray:
        """Return the noise of the running sums after ``at`` (K,) elements, shape (runs, K).

        ``sd`` on the lattice.
        """
        last = int(np.max(at, initial=0))
        if last > self.length:
            raise UsageError("a stream is full", got=f"{last} elements", expected=f"at most {self.length}")
        counter = BinnedCounter(self, runs)
        total = np.zeros((runs, last + 1))
        zero = np.zeros(runs, dtype=np.int64)
        draws = source.discrete_gaussian(np.full(last * runs, sd)).reshape(last, runs)
        for t in range(last):
            total[:, t + 1] = counter.append(zero, draws[t])
        return total[:, at]


class BinnedCounter:
    """Running sums of ``streams`` streams that get their elements at the same times.

    State: ``start`` (I,) first elements of the intervals, ``exact`` (I, S) sums of elements, whole;
    ``decoded`` (I, S) sums of what was decoded; ``count`` elements so far.
    """

    def __init__(self, factor: BinnedFactor, streams: int) -> None:
        self.factor = factor
        self.count = 0
        self.start = np.zeros(0, dtype=np.int64)
        self.exact = np.zeros((0, streams), dtype=np.int64)
        self.decoded = np.zeros((0, streams))

    def append(self, value: IntArray, noise: IntArray) -> FloatArray:
        """Add the next element of every stream with its discrete Gaussian ``noise``.

        Return noisy running sums, (S,). ``value`` and ``noise`` have shape (S,). Raises UsageError when the
        stream is full.
        """
        t = self.count
        if t >= self.factor.length:
            raise UsageError("a stream is full", expected=f"at most {self.factor.length} elements")
        own = int(self.factor.coefficients[0])
        past = self.factor.coefficients[t - self.start]
        noisy = past @ self.exact + own * value + noise
        decoded = (noisy - past @ self.decoded) / own
        self.count = t + 1
        start = np.append(self.start, t)
        kept = self.factor.merged(start, t)
        self.start = start[kept]
        self.exact = np.add.reduceat(np.vstack([self.exact, value]), kept, axis=0)
        self.decoded = np.add.reduceat(np.vstack([self.decoded, decoded]), kept, axis=0)
        return np.asarray(self.decoded.sum(axis=0))
