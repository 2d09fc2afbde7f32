"""A fixed lattice of centres in R^d: every point of the space has one of them near, with few centres.

The lattice is A_d^*, the projection of Z^(d+1) onto the vectors whose entries add up to 0, turned into R^d
and scaled: the best covering known in 2 to 8 dimensions (Conway and Sloane, "Sphere Packings, Lattices and
Groups", chapters 2 and 4). In its own scale its covering radius is sqrt(d (d + 2)/(12 (d + 1))) and a cell
has the volume 1/sqrt(d + 1). It depends on public numbers alone: d and the covering radius that is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
WIDER = 1 + 1e-9
"""Balls are searched a little wider than asked: a centre too many is still one of the lattice."""


@dataclass(frozen=True)
class CentreLattice:
    """The lattice of R^``dimensions`` (at least 1) with covering radius ``radius`` > 0."""

    dimensions: int
    radius: float

    @property
    def scale(self) -> float:
        """Return the factor from the lattice's own scale to this one."""
        d = self.dimensions
        return self.radius / math.sqrt(d * (d + 2) / (12 * (d + 1)))

    @cached_property
    def plane(self) -> FloatArray:
        """Return Helmert's orthonormal vectors of the plane of entries that add up to 0: (d, d + 1)."""
        d = self.dimensions
        rows = np.tril(np.ones((d, d + 1)))
        k = np.arange(1, d + 1)
        rows[np.arange(d), k] = -k
        result: FloatArray = rows / np.sqrt(k * (k + 1))[:, None]
        return result

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
        result: FloatArray = (floor + raised) @ self.plane.T * self.scale
        return result

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
            reach = np.sqrt(left) / abs(upper[i, i])
            low = np.ceil(middle - reach).astype(np.int64)
            count = np.maximum(np.floor(middle + reach).astype(np.int64) - low + 1, 0)
            parent = np.repeat(np.arange(len(count)), count)
            value = low[parent] + np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count)
            chosen = chosen[parent]
            chosen[:, i] = value
            left = np.maximum(left[parent] - ((value - middle[parent]) * upper[i, i]) ** 2, 0.0)
        result: FloatArray = chosen @ self.plane[:, :d].T * self.scale
        return result
