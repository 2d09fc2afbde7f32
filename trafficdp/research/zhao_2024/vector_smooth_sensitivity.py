"""Smooth sensitivity of the Huber minimiser of vectors, in the l2 norm of R^d.

A fixed lattice of centres in R^d: every point of the space has one of them near, with few centres.

The lattice is A_d^*, the projection of Z^(d+1) onto the vectors whose entries add up to 0, turned into R^d
and scaled: the best covering known in 2 to 8 dimensions (Conway and Sloane, "Sphere Packings, Lattices and
Groups", chapters 2 and 4). In its own scale its covering radius is sqrt(d (d + 2)/(12 (d + 1))) and a cell
has the volume 1/sqrt(d + 1). It depends on public numbers alone: d and the covering radius that is asked for.

How many vehicles would have to be replaced until their vectors are well concentrated: exact, in R^d.

For a centre c a data set is *good* when every |y_i - c| is at most ``share`` T_i and sum w_i |y_i - c| is at
most ``mean_limit``. Replaced vectors are best put at c, where they add nothing. So the distance of a data set
to the good ones of c is the number of vectors outside their balls, plus the least t such that without the t
largest w_i |y_i - c| of the others the sum is small enough: exact, by sorting. The distance to the good data
sets of all centres of a lattice (``centre_lattice``) is the least of these. It is a Hamming distance
to a set that does not depend on the data, so that it changes by at most 1 when one vehicle changes.

**Only centres near the Huber minimiser can do.** If k replacements lead to a good data set of c, then the
minimiser lies within (mean_limit + A_k)/W_k of c (``vector_smooth_sensitivity``). A centre that is
known to cost k1 leaves those within that radius for k = k1 - 1; the others are never enumerated, however many
there are. That ball is covered by balls of half its size, and so on (branch and bound): with |y_i - b| less
the ball's size for the distances, the cost of its middle b bounds those of all centres in it from below.

Data sets are (n, d); the distance depends on values and is never published.

Smooth sensitivity of the Huber minimiser of vectors, in the l2 norm of R^d.

Paper 001 (Zhao et al., arXiv 2405.13453), lemmas 1 to 4, for vectors y_i of length at most R, weights w_i
that add up to 1 and thresholds T_i. W_k is 1 minus the k largest weights, A_k the sum of the k largest w_i
T_i, Tbar the sum of all. Outliers are counted against balls around centres that are fixed in advance
(``vector_outliers``), not around the data's own mean as in one dimension
(``bounding.huber``): in R^d the mean ties the vehicles together, and whom to replace is no
longer a matter of sorting.

**Good.** For an integer k0 >= 1, a share lambda of the mean and a margin g > 0 let

    s = (T_min W_k0 - A_k0 - g) / (T_min W_k0 + lambda Tbar) > 0.

D* is good for a centre c when d_i = |y_i* - c| <= s T_i for all i and sum w_i d_i <= a = lambda s Tbar. For
at most k0 replaced vehicles I write B_I = sum of w_i d_i over the others plus sum of w_i T_i over I, and W_I
for the weight of the others. Then B_I <= a + A_k0 = (1 - s) T_min W_k0 - g.

*Where the minimiser is.* Within rho = (1 - s) T_min of c every vehicle that was not replaced is quadratic:
the curvature is at least W_I. At c the gradient is at most B_I long. So along every ray from c the radial
gradient exceeds W_I t - B_I up to t = rho, is at least g from there on, and the minimiser is unique, within
B_I/W_I of c.

* **One replacement more** moves it by at most 2 max(w_i T_i)/W_k (1 + s max(w_i)/W_(k+1)) when k <= k0 - 1
  vehicles were replaced. A replaced vehicle j changes its gradient by at most 2 w_j T_j, with curvature W_k.
  A good one changes it at the old minimiser by at most w_j (T_j + d_j + B_I/W_I); the inequality for I and j
  together gives B_I/W_I <= (T_j - d_j)(1 - 2 w_j/W_I), and the curvature is W_I - w_j: 2 w_j T_j (1 - (1 -
  d_j/T_j) w_j/W_I)/(W_I - w_j) = 2 w_j T_j/W_I (1 + (d_j/T_j) w_j/(W_I - w_j)).
* L3 holds as in one dimension: with Z_i = |y_i - ybar| and the margin, h1 = max w_i (T_i + Z_i)/(1 - w_i)
  bounds the local sensitivity where w_i (T_i + Z_i) + g <= (1 - w_i) min(T_j - Z_j) for all i.

Delta is the distance to the good data sets of all centres: a Hamming distance to a fixed set. With U = 2R

    G(D, k) = min of  U;   h1 if k = 0 and L3 holds;   the bound for k + Delta if k + Delta <= k0 - 1
    S(D)    = max over k of e^(-beta k) G(D, k),  the least over several (k0, lambda),  plus the slack below

bounds the local sensitivity, and S(D) <= e^beta S(D') for neighbours, because |Delta - Delta'| <= 1.

**The iterate is released, not the minimiser.** Weiszfeld's iteration stops where the gradient is at most tol
= TOLERANCE T_min < g long. Where a bound other than U is used, D and its neighbours are within k0
replacements of a good data set (or L3 holds): outside the ball the gradient is longer than g, so that the
iterate is inside, and strong convexity puts it within tol/W of the minimiser, W > 1/2. Two iterates are
therefore at most 4 tol further apart than the minimisers: that is added to S. And the iteration ends in time:
a step outside the ball lowers the loss by g^2/2, one inside takes away the share W of what is left (what is
left is at most |gradient|^2/(2 W)), at the start it is at most 2 R Tbar. ``most_steps`` is that many steps.
Data that need more have S = U, and so have their neighbours; iterates lie in the hull of the data, where U is
enough. Rounding of floats is not accounted for.

**S, Delta and anything computed from them stay inside the mechanism: they depend on values.**
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.bounding.huber import huber_point
from trafficdp.errors import UsageError, integer_between, positive

WIDER = 1 + 1e-9
"""Balls are searched a little wider than asked: a centre too many is still one of the lattice."""


@dataclass(frozen=True)
class CentreLattice:
    """The lattice of R^``dimensions`` (at least 1) with covering radius ``radius`` > 0."""

    dimensions: int
    radius: float

    @property
    def scale(self) -> float:
        """The factor from the lattice's unit scale to that of this one."""
        d = self.dimensions
        return self.radius / math.sqrt(d * (d + 2) / (12 * (d + 1)))

    @cached_property
    def plane(self) -> FloatArray:
        """Helmert's orthonormal vectors that span the entries adding up to 0, shape (d, d + 1)."""
        d = self.dimensions
        rows = np.tril(np.ones((d, d + 1)))
        k = np.arange(1, d + 1)
        rows[np.arange(d), k] = -k
        return np.asarray(rows / np.sqrt(k * (k + 1))[:, None])

    def most_within(self, distance: float) -> float:
        """Return an upper bound of the number of centres within ``distance`` of any point.

        Their cells do not overlap and lie within ``distance`` + radius of it.
        """
        d = self.dimensions
        log_ball = d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1)
        log_cell = d * math.log(self.scale) - math.log(d + 1) / 2
        return math.exp(log_ball + d * math.log(distance + self.radius) - log_cell)

    def around(self, point: FloatArray) -> FloatArray:
        """Return d + 1 centres around ``point`` (shape (d,)), shape (d + 1, d), the nearest within radius.

        They are the corners of the Delaunay simplex that holds the point: floor, and one more for the entries
        with the k largest remainders. The power of the point with respect to the simplex's sphere is a mean
        of its squared distances to the corners, less than radius^2.
        """
        lifted = point @ self.plane / self.scale
        floor = np.floor(lifted)
        order = np.argsort(floor - lifted, kind="stable")
        raised = np.zeros((self.dimensions + 1, self.dimensions + 1))
        raised[:, order] = np.tril(np.ones((self.dimensions + 1, self.dimensions + 1)), -1)
        return (floor + raised) @ self.plane.T * self.scale

    def within(self, point: FloatArray, distance: float) -> FloatArray:
        """Return all centres within ``distance`` of ``point`` (shape (d,)), shape (M, d).

        Coordinate by coordinate in a triangular basis (Fincke and Pohst): every partial sum of squares that
        is already too long is dropped with all that would follow from it.
        """
        d = self.dimensions
        # the projections of the first d unit vectors are a basis
        turn, upper = np.linalg.qr(self.plane[:, :d])
        target = turn.T @ point / self.scale
        left = np.full(1, (distance / self.scale * WIDER) ** 2)
        chosen = np.zeros((1, d))
        for i in range(d - 1, -1, -1):
            middle = (target[i] - chosen[:, i + 1 :] @ upper[i, i + 1 :]) / upper[i, i]
            max_distance = np.sqrt(left) / abs(upper[i, i])
            low = np.ceil(middle - max_distance).astype(np.int64)
            count = np.maximum(np.floor(middle + max_distance).astype(np.int64) - low + 1, 0)
            parent = np.repeat(np.arange(len(count)), count)
            value = low[parent] + np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count)
            chosen = chosen[parent]
            chosen[:, i] = value
            left = np.maximum(left[parent] - ((value - middle[parent]) * upper[i, i]) ** 2, 0.0)
        return chosen @ self.plane[:, :d].T * self.scale


CHUNK = 500_000
"""So many (centre, vehicle) pairs are looked at together."""
ROUNDING = 1e-12
"""Sums are taken as covered when this share of the limit is missing."""


def vector_distance(
    y: FloatArray,
    weight: FloatArray,
    radius: FloatArray,
    mean_limit: float,
    lattice: CentreLattice,
    minimiser: FloatArray,
    max_distance: FloatArray,
    limit: int,
) -> int:
    """Return the least number of vehicles to replace until data is good for some centre, at most ``limit``.

    Exact.

    Private. ``y`` (n, d) are the vehicles' vectors, ``weight`` and ``radius`` = share T_i have shape (n,),
    ``minimiser`` (d,) is near the Huber minimiser, and ``max_distance[k]`` (shape (limit,), increasing) how
    far from it a centre that costs k can be.
    """

    def cost(centres: FloatArray, size: float) -> IntArray:
        """Return a lower bound of the costs within ``size`` of each centre: the cost itself for 0."""
        found = np.empty(len(centres), dtype=np.int64)
        step = max(1, CHUNK // len(y))
        for begin in range(0, len(centres), step):
            part = slice(begin, begin + step)
            distance = _length(centres[part, None, :] - y)
            shortest = np.maximum(distance - size * WIDER, 0.0)
            found[part] = _costs(shortest, weight, radius, mean_limit)
        return found

    best = min(limit, int(cost(lattice.around(minimiser), 0.0).min()))
    if best == 0:
        return 0
    # every centre that may still be better is this near
    near = float(max_distance[best - 1])
    if int(cost(minimiser[None], near)[0]) >= best:
        return best
    # finer and finer balls, of which those that cannot hold a better centre are dropped
    balls, size = minimiser[None], near
    while size > 2 * lattice.radius and len(balls):
        coarse = CentreLattice(y.shape[1], size / 2)
        balls = _distinct([coarse.within(ball, 1.5 * size) for ball in balls], lattice.radius)
        size /= 2
        balls = balls[cost(balls, size) < best]
    if not len(balls):
        return best
    centres = _distinct([lattice.within(ball, size) for ball in balls], lattice.radius)
    return min(best, int(cost(centres, 0.0).min(initial=best)))


def _distinct(parts: list[FloatArray], scale: float) -> FloatArray:
    """Return the rows of all parts, each once; rows that differ by rounding alone are the same."""
    rows = np.concatenate(parts)
    _, first = np.unique(np.rint(rows * (1e6 / scale)), axis=0, return_index=True)
    return np.asarray(rows[first])


def _length(vectors: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.einsum("...k,...k->...", vectors, vectors)))


def _costs(distance: FloatArray, weight: FloatArray, radius: FloatArray, mean_limit: float) -> IntArray:
    """Return the distance to the good data sets of each centre from |y_i - c|, shape (centres, n)."""
    inside = distance <= radius
    outside = np.count_nonzero(~inside, axis=1)
    pull = np.where(inside, weight * distance, 0.0)
    excess = pull.sum(axis=1) - mean_limit * (1 + ROUNDING)
    extra = np.zeros(len(distance), dtype=np.int64)
    short = excess > 0
    if short.any():
        largest = -np.sort(-pull[short], axis=1)
        covered = np.cumsum(largest, axis=1) >= excess[short][:, None]
        extra[short] = np.count_nonzero(~covered, axis=1) + 1
    return np.asarray((outside + extra).astype(np.int64))


TOLERANCE = 1e-8
"""Gradient at which the iteration stops, as a share of the least threshold."""
MARGIN = 0.01
"""g, as a share of the least threshold."""
LEAST_THRESHOLD = 1e-4
"""Least threshold, as a share of R."""
MOST_DIMENSIONS = 8
MOST_CENTRES = 2_000_000
"""Levels for which more centres of the lattice could have to be looked at are left out."""
FINEST = 0.05
"""Covering radius of the lattice, as a share of the least threshold, where centres are few."""
FARTHEST = 0.75
"""The lattice is as fine as MOST_CENTRES allows for minimisers this share of T_min from their centre."""
MEAN_SHARES = (0.5, 0.75)
"""Values of lambda."""
LEVELS = 12
"""Values of k0 that are tried, spread evenly over those with s from LEAST_SHARE on."""
LEAST_SHARE = 0.2
"""Families of narrower balls than this share of the thresholds are not tried."""


@dataclass(frozen=True)
class GoodDataSets:
    """A family of good data sets: k0, s, a; how far the minimiser can be after k = 0..k0-1 replacements."""

    k0: int
    share: float
    mean_limit: float
    max_distance: FloatArray


@dataclass(frozen=True)
class VectorHuberParameters:
    """What does not depend on values: weights (adding up to 1) and thresholds (n,), d, and the radius R.

    Raises UsageError unless weights and thresholds are positive, the weights add up to 1, no threshold is
    below LEAST_THRESHOLD R (floats could not follow the gradient), R is positive and d is 1 to
    MOST_DIMENSIONS (beyond, centres would be too many).
    """

    weight: FloatArray
    threshold: FloatArray
    dimensions: int
    radius: float

    def __post_init__(self) -> None:
        positive(radius=self.radius)
        integer_between(1, MOST_DIMENSIONS, dimensions=self.dimensions)
        lengths = {self.weight.shape, self.threshold.shape}
        if lengths != {(len(self.weight),)} or not len(self.weight):
            raise UsageError("weights and thresholds do not fit", got=f"{lengths}", expected="one a vehicle")
        if not (np.all(self.weight > 0) and abs(float(self.weight.sum()) - 1) <= 1e-9):
            raise UsageError("weights do not add up", expected="positive weights that add up to 1")
        least = LEAST_THRESHOLD * self.radius
        if not (np.all(self.threshold >= least) and np.all(np.isfinite(self.threshold))):
            raise UsageError("a threshold is too small", expected=f"every threshold from {least:g} on")

    @property
    def upper(self) -> float:
        """The largest l2 distance of two estimates: 2 R, with ``radius`` R the bound on vectors' lengths."""
        return 2 * self.radius

    @property
    def tolerance(self) -> float:
        """The l2 length of the gradient at which the iteration stops: TOLERANCE times the least threshold."""
        return TOLERANCE * float(self.threshold.min())

    @property
    def most_steps(self) -> int:
        """The number of steps after which the iteration has ended wherever the smooth sensitivity is
        below U.
        """
        least = float(self.threshold.min())
        above = self.upper * float(self.weight @ self.threshold)
        outside = 2 * above / (MARGIN * least) ** 2
        return math.ceil(outside + max(0.0, math.log2(2 * above / self.tolerance**2))) + 2

    @cached_property
    def remaining(self) -> FloatArray:
        """The least total weight that remains without any k vehicles, k = 0..n, shape (n + 1,)."""
        return np.append(1.0, np.maximum(1.0 - np.cumsum(-np.sort(-self.weight)), 0.0))

    @cached_property
    def moved(self) -> FloatArray:
        """The largest sum of weight times threshold over any k vehicles, k = 0..n, shape (n + 1,)."""
        return np.append(0.0, np.cumsum(-np.sort(-self.weight * self.threshold)))

    @cached_property
    def lattice(self) -> CentreLattice:
        """The lattice of centres, as fine as the allowed number of centres permits."""
        unit = CentreLattice(self.dimensions, 1.0)
        # most_within(x) grows as (x + 1)^d
        parts = (MOST_CENTRES / unit.most_within(0.0)) ** (1 / self.dimensions) - 1
        return CentreLattice(self.dimensions, max(FINEST, FARTHEST / parts) * float(self.threshold.min()))

    @cached_property
    def levels(self) -> list[GoodDataSets]:
        """The families of good data sets that are tried, those that are most often of use first."""
        least, mean = float(self.threshold.min()), float(self.weight @ self.threshold)
        k = np.arange(len(self.weight))
        room = least * self.remaining[:-1] - self.moved[:-1] - MARGIN * least
        shares = [room / (least * self.remaining[:-1] + part * mean) for part in MEAN_SHARES]
        wide = (np.maximum.reduce(shares) >= LEAST_SHARE) & (k > 0) & (2 * k < len(k))
        largest = int(np.count_nonzero(wide))
        spread = {-(-largest * step // LEVELS) for step in range(1, LEVELS + 1)} - {0}
        found = []
        for k0 in sorted(spread, key=lambda k0: abs(k0 - len(k) / 4)):
            for part, share in zip(MEAN_SHARES, shares, strict=True):
                limit = part * float(share[k0]) * mean
                max_distance = (limit + self.moved[:k0]) / self.remaining[:k0] + 2 * self.tolerance
                few = self.lattice.most_within(float(max_distance[-1])) <= MOST_CENTRES
                if share[k0] >= LEAST_SHARE and few:
                    found.append(GoodDataSets(k0, float(share[k0]), limit, max_distance))
        return found

    def bound_of(self, level: GoodDataSets, delta: int, one: float, beta: float) -> float:
        """Return the bound on the smooth sensitivity by one family ``level``, at distance ``delta`` <= k0
        from it.

        ``one`` is the bound of lemma L3, or U where it does not hold; ``beta`` is the smoothness.
        """
        k = np.arange(level.k0 - delta)
        heavy = level.share * float(self.weight.max()) / self.remaining[delta + k + 1]
        bound = 2 * float(self.moved[1]) / self.remaining[delta + k] * (1 + heavy)
        # from k = k0 - Delta on only U is known, but for h1 at k = 0
        bound = np.minimum(np.append(bound, self.upper), self.upper)
        bound[0] = min(float(bound[0]), one)
        if len(bound) == 1:
            bound = np.append(bound, self.upper)
        return float((bound * np.exp(-beta * np.arange(len(bound)))).max())


def minimiser(y: FloatArray, shape: VectorHuberParameters) -> FloatArray:
    """Return the Huber mean of the private vectors ``y`` (n, d), an iterate near the minimiser, (d,)."""
    where = np.zeros(len(y), dtype=np.int64)
    found = huber_point(
        y, shape.weight, shape.threshold, where, 1, tolerance=shape.tolerance, most_steps=shape.most_steps
    )
    return np.asarray(found[0])


def vector_smooth_sensitivity(
    y: FloatArray, shape: VectorHuberParameters, centre: FloatArray, beta: float
) -> float:
    """Return the smooth sensitivity, at most U, for private ``y`` (n, d) and its Huber mean ``centre``.

    Never publish.

    ``beta`` >= 0 is the smoothness. U where no level is left: fewer than 3 vehicles, or one that dominates.
    """
    offset = y - shape.weight @ y
    spread = np.sqrt(np.einsum("ij,ij->i", offset, offset))

    def distance(level: GoodDataSets, limit: int) -> int:
        return vector_distance(
            y,
            shape.weight,
            level.share * shape.threshold,
            level.mean_limit,
            shape.lattice,
            centre,
            level.max_distance,
            limit,
        )

    return _smooth(shape, spread, beta, distance)


def typical_vector_sensitivity(
    shape: VectorHuberParameters, beta: float, *, spread: float = 0.4, mean_spread: float = 0.2
) -> float:
    """Return a forecast of the smooth sensitivity where vehicles agree, from public numbers.

    Where |y_i - ybar| <= ``spread`` T_i, with a mean of ``mean_spread`` Tbar. A centre is up to the lattice's
    radius from ybar, across the differences of most vehicles: the two are added as squares. This decides,
    before any value is read, whether the method pays; it proves nothing.
    """
    net = shape.lattice.radius
    mean = float(shape.weight @ shape.threshold)
    most = math.hypot(spread, net / float(shape.threshold.min()))

    def distance(level: GoodDataSets, limit: int) -> int:
        good = level.share >= most and level.mean_limit >= math.hypot(mean_spread * mean, net)
        return 0 if good else limit

    return _smooth(shape, spread * shape.threshold, beta, distance)


def _smooth(
    shape: VectorHuberParameters,
    spread: FloatArray,
    beta: float,
    distance: Callable[[GoodDataSets, int], int],
) -> float:
    """Return the least S over the levels; the distance to their good sets comes from ``distance``."""
    weight, threshold, upper = shape.weight, shape.threshold, shape.upper
    if not shape.levels:
        return upper
    alone = np.where(
        weight < 1, weight * (threshold + spread) / np.where(weight < 1, 1 - weight, 1.0), np.inf
    )
    margin = MARGIN * float(threshold.min())
    fits = bool(
        np.all(weight * (threshold + spread) + margin <= (1 - weight) * float((threshold - spread).min()))
    )
    one = min(float(alone.max()), upper) if fits else upper
    best = upper
    for level in shape.levels:
        # the bound grows with the distance: from ``limit`` on this level cannot be the least
        limit = bisect_left(range(level.k0), best, key=lambda delta: shape.bound_of(level, delta, one, beta))
        if limit and (delta := distance(level, limit)) < limit:
            best = shape.bound_of(level, delta, one, beta)
    if one < upper:
        best = min(best, max(one, upper * math.exp(-beta)))
    return min(best + 4 * shape.tolerance, upper)
