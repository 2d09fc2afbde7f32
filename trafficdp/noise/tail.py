"""Tails of noise on integers, and of sums of independent noises.

How far off Laplace noise puts a number: the half width of an interval, and the expected error.

Sums of several Laplace draws: their tail, exactly for continuous noise and safely for integers.

**The tail.** Let X be the sum of n independent Laplace variables of scale 1. Then |X| is Gamma(j, 1) with
probability p_j = 2 C(2n - j - 1, n - 1) 2^(j - 2n), j = 1..n, so that

    P(|X| > h) = sum_j p_j Q(j, h),   Q the regularised upper incomplete gamma function.

*Proof.* X has the law of G - G', both Gamma(n, 1): the n-th arrivals of two independent Poisson processes
of rate 1. Merged, their arrivals belong to either with probability 1/2. Let one process be the first to
reach n, at arrival number 2n - j in all, while the other has n - j: this has probability p_j. The other
then needs j more arrivals, of its own rate: the difference is Gamma(j, 1). QED. All terms are positive, so
floating point loses no digits.

**Integers.** Discrete Laplace Z of scale B (P(z) proportional to exp(-|z|/B)) can be drawn together with
continuous L of the same scale and sign such that |Z - L| < 1. *Proof.* P(|Z| >= j) = 2 e^(-j/B) / (1 +
e^(-1/B)) = e^(-(j - 1/2)/B) / cosh(1/(2B)) <= P(|L| >= j - 1/2), and it is at least e^(-j/B) = P(|L| >= j).
Pairing quantiles, |Z| = j implies j - 1/2 <= |L| < j + 1. QED. So n draws are off their continuous twins
by less than n together, and P(|sum Z| > n + B h) <= P(|X| > h).

Discrete Gaussian noise: P(z) proportional to exp(-z^2 / (2 sd^2)) on the integers (Canonne, Kamath, Steinke
2020). An integer statistic that one user moves by at most D is D^2/(2 sd^2)-zCDP under it (their Theorem 4),
and losses of several such statistics add up.

Tails of sums of independent Laplace noises: half widths of differences and averages, with their proofs.

Notation: L_b is continuous Laplace of scale b, Z_B discrete Laplace of scale B (P(Z = z) proportional to
q^|z|, q = e^(-1/B)), s Z_B its multiple on a lattice of step s.

**Shift.** Z_B is stochastically at most L_B + d with d = 1/2 + B ln cosh(1/(2B)) <= 1. *Proof.* For whole
j >= 1: P(Z >= j) = q^j/(1 + q) and P(L + d >= j) >= q^(j-d)/2, so q^d <= (1 + q)/2 is needed; for j <= 0 it
is 2 q^(1-d) >= 1 + q. The second says d >= 1 + B ln((1 + q)/2) = 1/2 + B ln cosh(1/(2B)); then
q^d = 2q/(1 + q) <= (1 + q)/2, the first. At B -> 0 the limit is 1. QED.

**Two noises.** T(h) = P(|L_a + L_b| > h) = (a^2 e^(-h/a) - b^2 e^(-h/b))/(a^2 - b^2), and
(1 + h/(2a)) e^(-h/a) for a = b. It grows with either scale. With the shift (and symmetry, both signs)
P(|s Z - s' Z'| > h) <= T(h - s d - s' d').

Its integral, E min(|L_a + L_b|, H) = (a^3 (1 - e^(-H/a)) - b^3 (1 - e^(-H/b)))/(a^2 - b^2), tends to
(a^2 + a b + b^2)/(a + b); for a = b it is a (3/2 - (3/2 + H/(2a)) e^(-H/a)). Without a limit the lattices'
noise is no larger: Z_B is below L_B in convex order. *Proof.* At whole t >= 0 E (Z - t)^+ = q^t/(2 sinh(1/B))
is at most E (L - t)^+ = B q^t/2; at t = j + f, linear between its ends, it is q^t/(2 sinh x) times
(1 - f) e^(f x) + f e^((f - 1) x), x = 1/B. This is E e^(x Y), Y = f with probability 1 - f and f - 1 else,
and Y is below V, uniform on [-1, 1], in convex order: (1 - f)(f - u) <= (1 - u)^2/4 = E (V - u)^+ for u in
[f - 1, f], the geometric mean being at most the arithmetic. And E e^(x V) = sinh(x)/x. QED.

**Many noises.** E e^(t Z_B) <= 1/(1 - t^2 B^2) = E e^(t L_B), because (cosh x - 1)/x^2 grows in x > 0. So
P(|sum Z_i| > h) <= 2 exp(-t h) prod 1/(1 - t^2 b_i^2) for every 0 < t < 1/max b (Chernoff); the t used is
chosen from the scales alone, so that the bound holds as it is.

**One sign.** |Z_B| is stochastically at most |L_B| + d as well (for j >= 1: 2 q^j/(1 + q) <= q^(j-d)), and
E e^(t |L_b|) = 1/(1 - t b). So P(sum |x_i| + |sum y_i| > h + sum s_i d_i) <= 2 e^(-t h) prod 1/(1 - t b_i)
prod 1/(1 - t^2 c_i^2) for noises x_i of scale b_i and y_i of scale c_i, all independent.

**Block noise** (``noise.block``). In a block of d items with scale s, given the block's k, the z_i are
independent and uniform on -a_i k..a_i k. Z + U, U uniform on +-1/2, is then uniform on +-(a k + 1/2), and
E e^(t Z) <= E e^(t (Z + U)) = sinh(x)/x <= e^(x^2/6), x = t (a k + 1/2): so a weighted sum is sub-Gaussian
with V = sum w_i^2 (a_i k_i + 1/2)^2 / 3. And k is stochastically at most s Gamma(d + 1) + 1
(``noise.block``). With K the quantile of that at error e/(2B) for each of B blocks, |sum w_i z_i| is at
most sqrt(2 V(K) ln(4/e)) but with probability e. Or by Chernoff: with u uniform on +-1 and r ~ Gamma(d + 1),
E e^(t w z) <= E e^(t w u (a s r + a + 1/2)) <= e^(t w (a + 1/2)) E (1 - x u)^-(d + 1), x = t w a s < 1, the
last factor being ((1 - x)^-d - (1 + x)^-d)/(2 d x); for m summed items of one block Hoelder gives the product
of the m-th roots at m t. Which of the two is taken depends on public numbers alone.
"""

from __future__ import annotations

from functools import lru_cache
from math import lgamma, log

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, ndtri

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import in_range


def half_width(scale: FloatArray, level: float) -> FloatArray:
    """Return the least whole h with P(|Z| > h) <= 1 - level, for discrete Laplace Z; 0 for scale 0.

    P(|Z| >= j) = 2 e^(-j/B) / (1 + e^(-1/B)) for j >= 1 (methods: the lattice tail; the formula of
    continuous Laplace would miss up to 1.46 times the error probability at B = 1).
    Raises UsageError unless 0 < level < 1.
    """
    in_range(0, 1, level=level)
    positive = np.where(scale > 0, scale, 1.0)
    beyond = positive * (np.log(2.0 / (1.0 - level)) - np.log1p(np.exp(-1.0 / positive)))
    # a few units in the last place up, so that rounding never shortens an interval
    first_excluded = np.maximum(np.ceil(beyond * (1 + 2.0**-49)), 1.0)
    return np.where(scale > 0, first_excluded - 1.0, 0.0)


def clamped_laplace_error(scale: FloatArray, bias: FloatArray, value_range: float) -> FloatArray:
    """Return the largest E|clip(f + Z, 0, R) - t| over numbers f and truths t in [0, R] with |f - t| <= beta.

    Z is Laplace of ``scale`` b (shape (G,)), beta the ``bias``, R the ``value_range``. For beta <= R/2
    exactly

        beta + b (e^(-beta/b) - e^(-R/(2b))),

    else beta, which is more. *Proof.* Convex in t, so take t = f + beta (or its mirror image). With F the law
    of Z the error is int_{-f}^{beta} F + int_beta^{R-f} (1 - F); its derivative in f is (e^(-f/b) -
    e^(-(R-f)/b))/2, so the worst f is R/2, or R - beta if that is less. Integrate. For beta > R/2 the result,
    beta + (b/2)(e^(-beta/b) - e^(-(R-beta)/b)), is at most beta. QED.

    With beta = 0 it is b (1 - e^(-R/(2b))); it never exceeds R/2 unless beta does. Never decreases in b or
    beta: b e^(-beta/b) - b e^(-R/(2b)) is the integral of e^(-x/b) over beta..R/2. 0 noise: beta. Discrete
    Laplace of the same scale has no larger expected absolute value (1/sinh(1/B) <= B).
    """
    noisy = np.where(scale > 0, scale, 1.0)
    with np.errstate(under="ignore"):
        noise = noisy * (np.exp(-bias / noisy) * -np.expm1(np.minimum((bias - value_range / 2) / noisy, 0.0)))
    return np.minimum(bias + np.where(scale > 0, noise, 0.0), value_range)


def gaussian_half_width(sd: FloatArray, level: float) -> FloatArray:
    """Return a whole h with P(|Z| > h) <= 1 - level for discrete Gaussian Z; 0 for sd 0.

    For whole m >= 1, P(Z >= m) <= P(N >= m - 1) with N normal of the same sd (Canonne, Kamath, Steinke
    2020, Proposition 25), so that h = ceil(sd * quantile) will do: at most one above the least such h.
    Raises UsageError unless 0 < level < 1.
    """
    in_range(0, 1, level=level)
    # a few units in the last place up, so that rounding never shortens an interval
    quantile = -float(ndtri((1.0 - level) / 2)) * (1 + 2.0**-40)
    return np.where(sd > 0, np.ceil(sd * quantile), 0.0)


def gaussian_absolute_error(sd: FloatArray) -> FloatArray:
    """Return sd sqrt(2/pi), at least E|Z| of the discrete Gaussian Z.

    By Poisson summation sum |j| e^(-j^2/(2 sd^2)) = sum over whole k of the transform
    2 sd^2 (1 - 2 x D(x)), x = sqrt(2) pi sd k, D Dawson's function. From sd = 0.21 on, x > 0.925 for all
    k != 0, where the bracket is negative: the sum is at most 2 sd^2, and the normaliser at least
    sd sqrt(2 pi). Below, 2 e^(-1/(2 sd^2)) (1 + 3 e^(-3/(2 sd^2))) is smaller still.
    """
    return np.asarray(sd * np.sqrt(2 / np.pi))


_SLACK = 1 + 2.0**-30
"""Covers the rounding of sum, special functions and root; the sum of n <= 64 terms is good to 1e-12."""


def stages(terms: int) -> FloatArray:
    """Return the probabilities p_1..p_n that the size of a sum of n Laplace variables is Gamma(j, 1), (n,).

    n is ``terms``.
    """
    n, j = terms, np.arange(1, terms + 1)
    logs = [lgamma(2 * n - k) - lgamma(n) - lgamma(n - k + 1) + (k - 2 * n + 1) * log(2) for k in j.tolist()]
    return np.exp(np.array(logs, dtype=np.float64))


def tail_of_sum(height: float, terms: int) -> float:
    """Return P(|X| > height) for the sum X of ``terms`` Laplace variables of scale 1."""
    return float(np.sum(stages(terms) * gammaincc(np.arange(1, terms + 1), height)))


def half_width_of_sum(scale: FloatArray, terms: IntArray, level: float) -> FloatArray:
    """Return h with P(|sum of ``terms`` discrete Laplace draws of ``scale``| > h) <= 1 - level.

    Both of shape (G,); 0 where there are no terms. Exact on the lattice for one term; for more, the
    module's bound. Raises UsageError unless 0 < level < 1.
    """
    in_range(0, 1, level=level)
    distinct, which = np.unique(terms, return_inverse=True)
    heights = np.array([_height(int(n), level) for n in distinct], dtype=np.float64)[which]
    several = terms + scale * heights
    return np.where(terms <= 0, 0.0, np.where(terms == 1, half_width(scale, level), several))


def clamped_sum_error(scale: FloatArray, terms: IntArray, value_range: float) -> FloatArray:
    """Return the worst case over the truth of E|clip(truth + noise) - truth|, clipping to [0, R].

    R is ``value_range``. Noise is symmetric, so the error at truth t is g(t) + g(R - t), g(a) = E min(X+, a)
    concave: worst in the middle, E min(|X|, R/2) = sum_j p_j (j P(j + 1, a) + a Q(j, a)), a = R/(2 scale),
    times the scale. ``scale`` (in the unit of ``value_range``) and ``terms`` have shape (G,). Continuous
    noise; the integers' is at most ``terms`` lattice steps more.
    """
    result = np.zeros(scale.shape)
    safe = np.where(scale > 0, scale, 1.0)
    half = value_range / (2 * safe)
    for n in np.unique(terms[terms > 0]).tolist():
        j = np.arange(1, n + 1)
        here = (terms == n) & (scale > 0)
        a = half[here][:, None]
        result[here] = (stages(n) * (j * gammainc(j + 1, a) + a * gammaincc(j, a))).sum(axis=1) * safe[here]
    return np.minimum(result, value_range / 2)


@lru_cache(maxsize=1024)
def _height(terms: int, level: float) -> float:
    """The h of scale 1, rounded up."""
    from scipy.optimize import brentq

    if terms <= 0:
        return 0.0
    alpha = (1 - level) / _SLACK
    # n Laplaces have tail at most that of n times one at h/n
    most = 1.0 + terms * (log(1 / alpha) + log(terms) + 1)
    root = float(brentq(lambda h: tail_of_sum(h, terms) - alpha, 0.0, most, xtol=1e-12))
    return root * _SLACK + 1e-9


_ROUNDING = 1 + 2.0**-40
_NEARLY_EQUAL = 1e-3
"""Scales closer than this share are both taken as the larger: the tail only grows, nothing cancels."""


def lattice_shift(scale: FloatArray) -> FloatArray:
    """Return by how many lattice steps discrete Laplace noise may exceed continuous noise, at most 1, rounded
    up.

    Of the same ``scale``, stochastically: 1/2 + B ln cosh(1/(2B)); 0 for scale 0 (no noise).
    """
    positive = np.where(scale > 0, scale, 1.0)
    half = 1 / (2 * positive)
    # ln cosh x = x + ln(1 + e^(-2x)) - ln 2, which does not overflow
    log_cosh = half + np.log1p(np.exp(-2 * half)) - np.log(2.0)
    shift = np.minimum((0.5 + positive * log_cosh) * _ROUNDING, 1.0)
    return np.where(scale > 0, shift, 0.0)


def two_noises_tail(first: FloatArray, second: FloatArray, h: FloatArray) -> FloatArray:
    """Return an upper bound of P(|L_a + L_b| > ``h``) for independent Laplace noises, elementwise; h >= 0.

    a and b are ``first`` and ``second`` >= 0; 0 if both are.
    """
    a, apart, alike = _ratio(first, second)
    x = h / a
    with np.errstate(divide="ignore", under="ignore"):
        tail_of_small = np.where(apart > 0, apart**2 * np.exp(-x / np.where(apart > 0, apart, 1.0)), 0.0)
    different = (np.exp(-x) - tail_of_small) / (1 - apart**2)
    tail = np.where(alike, (1 + x / 2) * np.exp(-x), different)
    return np.where(np.maximum(first, second) > 0, tail, 0.0)


def _ratio(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The larger scale (1 where both are 0), the smaller over it (0 where alike), and which are alike."""
    large, small = np.maximum(first, second), np.minimum(first, second)
    a = np.where(large > 0, large, 1.0)
    ratio = np.where(large > 0, small / a, 0.0)
    alike = ~(ratio < 1 - _NEARLY_EQUAL)
    return a, np.where(alike, 0.0, ratio), alike


def two_noises_mean(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return E|L_a + L_b| for independent Laplace noises of scales a and b, ``first`` and ``second`` >= 0.

    It is at least that of discrete noises of the same scales.
    """
    total = first + second
    return np.where(total > 0, total - first * second / np.where(total > 0, total, 1.0), 0.0)


def two_noises_error(first: FloatArray, second: FloatArray, limit: float) -> FloatArray:
    """Return an upper bound of E min(|L_a + L_b|, ``limit``) for independent Laplace noises, elementwise.

    a and b are ``first`` and ``second`` >= 0. For discrete noises add ``lattice_shift`` times the step of
    each.
    """
    a, apart, alike = _ratio(first, second)
    x = limit / a
    with np.errstate(under="ignore"):
        of_small = np.where(apart > 0, apart**3 * np.expm1(-x / np.where(apart > 0, apart, 1.0)), 0.0)
    different = (of_small - np.expm1(-x)) / (1 - apart**2)
    error = a * np.where(alike, 1.5 - (1.5 + x / 2) * np.exp(-x), different)
    return np.where(np.maximum(first, second) > 0, np.minimum(error, limit), 0.0)


def two_noises_half_width(first: FloatArray, second: FloatArray, error: float) -> FloatArray:
    """Return h with P(|L_a + L_b| > h) <= ``error`` for independent Laplace noises, rounded up, elementwise.

    a and b are ``first`` and ``second``. For discrete noises add ``lattice_shift`` times the step of each.
    Raises UsageError unless 0 < error < 1.
    """
    in_range(0, 1, error=error)
    wide = np.broadcast_arrays(np.asarray(first, np.float64), np.asarray(second, np.float64))
    return _two_noises_half_width(*(each.tobytes() for each in wide), error).reshape(wide[0].shape).copy()


@lru_cache(maxsize=4)
def _two_noises_half_width(first_bytes: bytes, second_bytes: bytes, error: float) -> FloatArray:
    # a map is carried out in many simulated cities, and its widths are the same in all
    first, second = np.frombuffer(first_bytes), np.frombuffer(second_bytes)
    large = np.maximum(first, second)
    low = np.zeros_like(large)
    # (1 + x/2) e^(-x) <= e^(-x/2)
    high = -2 * large * np.log(error) + large
    for _ in range(60):
        middle = (low + high) / 2
        beyond = two_noises_tail(first, second, middle) > error
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return np.asarray(high * (1 + 1e-9))


def sum_half_width(scales: FloatArray, error: float) -> float:
    """Return h with P(|sum of independent Laplace noises| > h) <= ``error``, by Chernoff's bound, one number.

    ``scales`` (n,) are b for continuous noise, step times B for discrete noise; 0 is no noise. Raises
    UsageError unless 0 < error < 1.
    """
    in_range(0, 1, error=error)
    largest = float(scales.max(initial=0.0))
    if largest == 0:
        return 0.0
    share = np.linspace(0, 1, 402)[1:-1]
    squares = (scales[scales > 0] / largest) ** 2
    distinct, times = np.unique(squares, return_counts=True)
    exponent = -(np.log1p(-np.outer(share**2, distinct)) @ times)
    bounds = (np.log(2 / error) + exponent) / share
    return float(bounds.min() * largest * (1 + 1e-9))


def one_sided_sum_half_width(first: FloatArray, shift: FloatArray, second: FloatArray, error: float) -> float:
    """Return h with P(sum |x_i| + |sum y_i| > h) <= ``error`` for independent Laplace noises, by Chernoff's
    bound.

    ``first`` (n,) are the scales of x, ``shift`` (n,) their lattice shifts (in the same unit), ``second``
    (n,) the scales of y. Raises UsageError unless 0 < error < 1.
    """
    in_range(0, 1, error=error)
    largest = float(max(first.max(initial=0.0), second.max(initial=0.0)))
    if largest == 0:
        return 0.0
    share = np.linspace(0, 1, 402)[1:-1, None]
    exponent = -np.log1p(-share * (first / largest)).sum(axis=1)
    exponent -= np.log1p(-((share * (second / largest)) ** 2)).sum(axis=1)
    bounds = (np.log(2 / error) + exponent) / share[:, 0]
    return float((bounds.min() * largest + shift.sum()) * (1 + 1e-9))


def block_sum_half_width(
    weight: FloatArray, half_width: IntArray, block: IntArray, size: IntArray, scale: FloatArray, error: float
) -> float:
    """Return h with P(|sum of ``weight`` z| > h) <= ``error`` for integer block noises z.

    All arrays have shape (n,), one entry an item: its half width, the number of its block (blocks are
    independent), the number of all items of that block, whether they are summed or not, and the block's
    scale. Raises UsageError unless 0 < error < 1.
    """
    in_range(0, 1, error=error)
    if not len(weight):
        return 0.0
    _, which, summed = np.unique(block, return_inverse=True, return_counts=True)
    blocks = len(summed)
    farthest = scale * gammainccinv(size + 1.0, error / (2 * blocks)) * (1 + 1e-9) + 1
    variance = float(((weight * (half_width * farthest + 0.5)) ** 2).sum()) / 3
    gaussian = np.sqrt(2 * variance * np.log(4 / error))
    chernoff = _block_chernoff(np.abs(weight), half_width, size, scale, summed[which], error)
    return float(min(gaussian, chernoff) * (1 + 1e-9))


def _block_chernoff(
    weight: FloatArray, half_width: IntArray, size: IntArray, scale: FloatArray, times: IntArray, error: float
) -> float:
    """Return the Chernoff bound of "Block noise"; ``times`` m items are summed of the item's block."""
    reach = times * weight * half_width * scale
    largest = float(reach.max())
    if largest == 0:
        return 0.0
    best = np.inf
    for share in np.linspace(0, 1, 102)[1:-1]:
        t = share / largest
        x = np.maximum(t * reach, 1e-12)
        # never less than its logarithm: the difference of the two powers in logarithms
        up, down = -size * np.log1p(-x), -size * np.log1p(x)
        moment = up + np.log(-np.expm1(down - up)) - np.log(2 * size * x)
        moment = moment + t * times * weight * (half_width + 0.5)
        best = min(best, (np.log(2 / error) + float((moment / times).sum())) / t)
    return float(best)
