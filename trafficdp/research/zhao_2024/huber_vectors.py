"""Huber for vectors, with one draw of l2 noise.

Gaussian noise for smooth sensitivities of vectors: (epsilon, delta)-DP in R^d.

Releasing f(D) + S(D)/alpha N(0, I) with a beta-smooth S (l2 norm of R^d) is (epsilon, delta)-DP when for all
|c| <= beta, as in one dimension (``noise.smooth_gaussian``),

    H_d(epsilon, c) = sup over events A of  P(A) - e^epsilon Q(A) <= delta,
    P = N(0, I),   Q = N(alpha min(1, e^c) e_1, e^(2c) I).

**One integral.** Across the shift only t = |z_2..d|^2 matters, a chi-square variable with d - 1 degrees of
freedom under P, where the log-ratio of the two densities gains (d - 1) c - t (1 - e^(-2c))/2. So

    H_d(epsilon, c) = E_t H_1(epsilon - (d - 1) c + t (1 - e^(-2c))/2, c),

with H_1 the closed form of one dimension: exact up to the error of a quadrature (Gauss-Legendre; QUADRATURE
is added), and growing with the shift because every H_1 does. Beyond the last node H_1 counts as 1.

**Between the values of c** that are looked at nothing can hide. For 0 <= c1 <= c <= c2 the density of Q_c is
at least e^(-d (c - c1)) times that of Q_c1; for negative c, in units of the other data set, the density of P
is at most e^(d (c2 - c)) times that of P_c2, where c now stands for -c. Hence, with h = d (c2 - c1),

    H_d(epsilon, c) <= H_d(epsilon - h, c1),    H_d(epsilon, -c) <= e^h H_d(epsilon - h, -c2).

``largest_alpha`` keeps these bounds below delta on a grid, so that its alpha is safe for every c and, the
grid being fine, within a percent of the largest possible. Drawn in floats: mechanisms that use it are
idealised.

Huber for vectors: the robust mean of vehicles' mean vectors in R^d, d up to 8, with one draw of l2 noise.

Paper 001 (Zhao et al., arXiv 2405.13453) for d > 1. Estimator by Weiszfeld's iteration to a stated gradient
(``bounding.huber``); smooth sensitivity in the l2 norm, with the iterate's distance from the minimiser
in it, and its proof (``vector_smooth_sensitivity``). One vehicle is one vector y_i, its mean, scaled
to at most the public length R: values of a box [0, U]^d lie within R = U sqrt(d)/2 once its middle is
subtracted.

Theorem (REPLACE_USER_VALUES, counts public). With S the beta-smooth bound of the iterate and |.| the l2 norm:

* y-hat + (S/alpha) t, t the multivariate Student-t of nu degrees of freedom, is epsilon-DP when
  max((nu + d)/2 ln lambda(0), (nu + d)/2 ln lambda(beta) + max(d, nu) beta) <= epsilon (``noise.student_t``);
* y-hat + (S/alpha) N(0, I) is (epsilon, delta)-DP for the alpha of ``smooth_gaussian_vectors``.

Defaults nu = d + 2 and beta = epsilon/(2 nu): for d = 1 those of ``mechanisms.huber.huber``. beta falls with
d + 2, for d single Hubers at epsilon/d each with 3 d: those need more vehicles before S is small, and have
more noise then.

Idealised: iterate, S and noise are floats. S, Delta and the distance behind it are never published.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaincc

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.bounding import huber
from trafficdp.errors import UsageError, in_range, positive
from trafficdp.noise import smooth_gaussian, student_t
from trafficdp.noise.source import NoiseSource
from trafficdp.research.aumuller_2023.plan import clip_to_length
from trafficdp.research.zhao_2024 import vector_smooth_sensitivity

STEPS = 64
"""Parts into which [0, beta] is cut."""
NODES = 60
TAIL = 1e-30
"""P(t beyond the last node)."""
QUADRATURE = 1e-6
"""More than the relative error of the quadrature."""
BISECTIONS = 50


def privacy_profile(epsilon: FloatArray, alpha: float, c: FloatArray, dimensions: int) -> FloatArray:
    """Return the least delta at ``epsilon`` for two neighbours under Gaussian noise in ``dimensions``
    coordinates.

    They differ by one smooth sensitivity in value and by a factor e^``c`` in it; ``alpha`` divides the
    sensitivity to give the standard deviation. Arrays of one shape.
    """
    if dimensions == 1:
        return smooth_gaussian.privacy_profile(epsilon, alpha, c)
    degrees = dimensions - 1
    end = math.sqrt(degrees) + math.sqrt(-2 * math.log(TAIL))
    # in x = sqrt(t) everything is smooth but for the place from which on the event has no border
    a, b, constant = smooth_gaussian.log_ratio(epsilon - degrees * c, alpha, c)
    with np.errstate(divide="ignore", invalid="ignore"):
        border = np.where(a == 0, end**2, (b * b / (4 * a) - constant) / np.where(a == 0, 1.0, a))
    cut = np.sqrt(np.clip(border, 0.0, end**2))[..., None]
    node, weight = np.polynomial.legendre.leggauss(NODES)
    x = np.concatenate([cut * (node + 1) / 2, cut + (end - cut) * (node + 1) / 2], axis=-1)
    share = np.concatenate([cut * weight / 2, (end - cut) * weight / 2], axis=-1)
    # the law of chi: 2^(1 - k/2)/Gamma(k/2) x^(k - 1) e^(-x^2/2)
    log_factor = (1 - degrees / 2) * math.log(2) - math.lgamma(degrees / 2)
    density = np.exp(log_factor - x**2 / 2) * x ** (degrees - 1)
    inner = (epsilon - degrees * c)[..., None] - x**2 * np.expm1(-2 * c)[..., None] / 2
    profile = smooth_gaussian.privacy_profile(inner, alpha, np.broadcast_to(c[..., None], inner.shape))
    return np.asarray((profile * density * share).sum(axis=-1) + float(gammaincc(degrees / 2, end**2 / 2)))


def delta_bound(epsilon: float, alpha: float, beta: float, dimensions: int) -> float:
    """Return an upper bound of the delta at ``epsilon`` of Gaussian noise S/``alpha``, S being
    ``beta``-smooth.
    """
    c = np.linspace(0.0, beta, STEPS + 1)
    h = dimensions * beta / STEPS
    reduced = np.full(STEPS, epsilon - h)
    wider = privacy_profile(reduced, alpha, c[:-1], dimensions)
    narrower = math.exp(h) * privacy_profile(reduced, alpha, -c[1:], dimensions)
    return float(max(wider.max(), narrower.max())) * (1 + QUADRATURE)


@lru_cache(maxsize=256)
def largest_alpha(epsilon: float, delta: float, beta: float, dimensions: int) -> float:
    """Return an alpha at which Gaussian noise S/alpha has at most ``delta``, rounded down.

    0 if none is found. S is ``beta``-smooth, ``dimensions`` d >= 1; epsilon, delta > 0, beta >= 0.
    """
    return smooth_gaussian.largest_within(
        lambda alpha: delta_bound(epsilon, alpha, beta, dimensions), delta, BISECTIONS
    )


FACTORS = (2.0, 2.5, 3.0, 4.0)
"""Thresholds that are tried, in radii within which independent vehicles lie with probability 0.95."""


def normal_radius(used: IntArray, dimensions: int, sigma: float) -> FloatArray:
    """Return how far each vehicle's mean vector lies from its expectation at most, with probability 0.95,
    (n,).

    r_i = sigma (sqrt(d) + sqrt(2 ln(20 n)))/sqrt(used_i). With u_i independent normal samples of standard
    deviation ``sigma`` a coordinate, all n means lie within r_i of their expectation with probability 0.95 (a
    length exceeds sqrt(d) + x with probability at most e^(-x^2/2)).
    """
    length = math.sqrt(dimensions) + math.sqrt(2 * math.log(20 * len(used)))
    return sigma * length / np.sqrt(used)


def huber_shape(
    count: IntArray,
    dimensions: int,
    radius: float,
    sigma: float,
    *,
    factor: float = 2.0,
    cap_ratio: float = 2.0,
) -> vector_smooth_sensitivity.VectorHuberParameters:
    """Return weights and thresholds of the Huber mean of vectors, from public counts.

    ``count`` (n,) samples of each vehicle, at least 1; weights by min(count, cap), thresholds ``factor``
    times ``normal_radius``, at most twice ``radius``, the bound on vectors' lengths; ``sigma`` a public
    standard deviation of single samples, never computed from the data. Raises UsageError when sigma, factor
    or radius is not positive, or ``dimensions`` not in 1..8.
    """
    positive(sigma=sigma)
    positive(factor=factor)
    one_bin = np.zeros(len(count), dtype=np.int64)
    used = huber.used_count(count, one_bin, 1, cap_ratio)
    weight = huber.normalised(used, one_bin, 1)
    threshold = np.minimum(factor * normal_radius(used, dimensions, sigma), 2 * radius)
    return vector_smooth_sensitivity.VectorHuberParameters(weight, threshold, dimensions, radius)


def best_huber_shape(
    count: IntArray, dimensions: int, radius: float, sigma: float, epsilon: float, *, cap_ratio: float = 2.0
) -> tuple[vector_smooth_sensitivity.VectorHuberParameters, float]:
    """Return the weights and thresholds with the least ``typical_vector_error``, and that error. Public.

    Of the FACTORS of thresholds: wider ones make S larger but reach it with fewer vehicles.
    """
    found = []
    for factor in FACTORS:
        shape = huber_shape(count, dimensions, radius, sigma, factor=factor, cap_ratio=cap_ratio)
        spread, root = 1 / factor, math.sqrt(dimensions)
        mean = spread * root / (root + math.sqrt(2 * math.log(20 * len(count))))
        found.append((typical_vector_error(shape, epsilon, spread=spread, mean_spread=mean), shape))
    error, shape = min(found, key=lambda pair: pair[0])
    return shape, error


def typical_vector_error(
    shape: vector_smooth_sensitivity.VectorHuberParameters,
    epsilon: float,
    *,
    spread: float = 0.4,
    mean_spread: float = 0.2,
) -> float:
    """Return the mean l2 length of the noise where vehicles agree: a forecast from public numbers.

    ``spread`` and ``mean_spread``: largest and mean |y_i - ybar| in thresholds
    (``typical_vector_sensitivity``). Compare it with what other mechanisms promise before a value is read.
    Raises UsageError when epsilon is not positive.
    """
    alpha, beta, degrees = _student(shape, epsilon, None)
    smooth = vector_smooth_sensitivity.typical_vector_sensitivity(
        shape, beta, spread=spread, mean_spread=mean_spread
    )
    return smooth / alpha * student_t.mean_absolute(degrees, shape.dimensions)


def huber_vector_mean(
    y: FloatArray,
    shape: vector_smooth_sensitivity.VectorHuberParameters,
    epsilon: float,
    noise: NoiseSource,
    *,
    degrees: float | None = None,
) -> FloatArray:
    """Return an epsilon-DP estimate of the weighted mean of the rows of ``y``, (d,), with Student-t noise.

    ``y`` (n, d) has a vector a vehicle; those longer than R, the bound in ``shape``, are scaled to length R
    first. ``degrees`` : nu > 1 of the noise, d + 2 unless given. Raises UsageError when epsilon is not
    positive, y does not have the shape of ``shape``, or no bound but 2R is possible: fewer than 4 vehicles,
    or one that dominates. All these grounds are public.
    """
    alpha, beta, freedom = _student(shape, epsilon, degrees)
    centre, smooth = centre_and_sensitivity(y, shape, beta)
    drawn = student_t.draw_vectors(freedom, 1, shape.dimensions, noise.uniform_below)
    return np.asarray(clip_to_length(centre + smooth / alpha * drawn, shape.radius)[0])


def gaussian_huber_vector_mean(
    y: FloatArray,
    shape: vector_smooth_sensitivity.VectorHuberParameters,
    epsilon: float,
    delta: float,
    noise: NoiseSource,
) -> FloatArray:
    """Return an (epsilon, delta)-DP estimate of the weighted mean of the rows of ``y``, with Gaussian noise,
    (d,).

    As ``huber_vector_mean``; also raises UsageError unless 0 < delta < 1. beta is so much smaller (15 times
    for epsilon 1, delta 1e-6 and d = 2) that it takes so many times more vehicles before S is small.
    """
    positive(epsilon=epsilon)
    in_range(0, 1, delta=delta)
    beta = smooth_gaussian.default_beta(epsilon, delta, shape.dimensions)
    alpha = largest_alpha(epsilon, delta, beta, shape.dimensions)
    centre, smooth = centre_and_sensitivity(y, shape, beta)
    drawn = student_t.normals(shape.dimensions, noise.uniform_below)
    return np.asarray(clip_to_length((centre + smooth / alpha * drawn)[None], shape.radius)[0])


def centre_and_sensitivity(
    y: FloatArray, shape: vector_smooth_sensitivity.VectorHuberParameters, beta: float
) -> tuple[FloatArray, float]:
    """Return the exact Huber mean (d,) and its smooth sensitivity: neither may leave the mechanism.

    Raises UsageError as ``huber_vector_mean``.
    """
    if y.shape != (len(shape.weight), shape.dimensions):
        raise UsageError(
            "vectors do not fit their shape",
            got=f"{y.shape}",
            expected=f"({len(shape.weight)}, {shape.dimensions})",
            todo="give one vector a vehicle",
        )
    if not shape.levels:
        raise UsageError(
            "no smooth sensitivity below the whole range",
            got=f"{len(shape.weight)} vehicles, the heaviest with {shape.weight.max():.3g} of the weight",
            expected="4 vehicles or more, none of which dominates, of like thresholds",
            todo="use Laplace noise, or cap the weights",
        )
    inside = clip_to_length(y, shape.radius)
    centre = vector_smooth_sensitivity.minimiser(inside, shape)
    return centre, vector_smooth_sensitivity.vector_smooth_sensitivity(inside, shape, centre, beta)


def _student(
    shape: vector_smooth_sensitivity.VectorHuberParameters, epsilon: float, degrees: float | None
) -> tuple[float, float, float]:
    """Return alpha, beta and nu."""
    positive(epsilon=epsilon)
    freedom = shape.dimensions + 2.0 if degrees is None else degrees
    if not math.isfinite(freedom) or freedom <= 1:
        raise UsageError("noise without a mean", got=f"degrees={degrees}", expected="a finite number above 1")
    beta = epsilon / (2 * max(freedom, shape.dimensions))
    alpha = student_t.largest_alpha(freedom, np.array([beta]), np.array([epsilon]), shape.dimensions)
    return float(alpha[0]), beta, freedom
