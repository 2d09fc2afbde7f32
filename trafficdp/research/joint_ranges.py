"""Narrower ranges and scales chosen together: what a user gives up in bias, all save in noise.

Each user's sum in bin g is clipped to the centred interval of length r_{g,l} in [0, U m_{g,l}]. Then
(paper 000's clipping, many bins at once)

    worst-case bias of bin g   sum_l (U m_{g,l} - r_{g,l}) / (2 N_g)
    loss of user l             sum_g r_{g,l} / (N_g b_g)

and bias_g + b_g <= E is the paper's error metric. With x = r / (U m) in [0, 1], D = U m / N and scales b
given, the least epsilon is the LP

    minimise epsilon   subject to   sum_g (D_{g,l} / b_g) x_{g,l} <= epsilon            for every user
                                    sum_l (D_{g,l} / 2) x_{g,l} >= sum_l D_{g,l}/2 - (E - b_g)   a bin.

b is searched: first a common b = f E, by golden section over f, then each bin along the LP's own prices.
Every candidate is solved exactly and is feasible, so the result holds whatever the search missed. With one
bin and b free it is the optimal clipping of paper 000. Only for E < U/2: from there on a constant meets the
metric at no cost (erratum E11). Means only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError, in_range, positive
from trafficdp.model import ContributionBound, Counts

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Joint:
    """The solution: clipping ranges, noise scales, and the total ``epsilon`` of both.

    Every pair keeps ``share`` (P,) of its range U m (m its count); ``scale`` (G,) is b_g, the Laplace scale
    of bin g. Worst-case bias + b_g is at most the error asked for.
    """

    share: FloatArray
    scale: FloatArray
    epsilon: float


def best_ranges_and_scales(
    counts: Counts, bound: ContributionBound, error: float, *, steps: int = 20, refinements: int = 6
) -> Joint:
    """Return the clipping ranges and Laplace scales of least epsilon with bias + scale at most ``error`` a
    bin.

    From public counts, by linear programs: ``steps`` of them find the common share of the scale in the error,
    ``refinements`` more shift it a bin. Raises UsageError unless 0 < error < U/2 and there is a bin.
    """
    in_range(0, float(bound.upper) / 2, error=error)
    positive(steps=steps)
    if not counts.bins:
        raise UsageError("there is no bin to release", todo="lower min_vehicles or widen area and period")
    program = _Program(counts, float(bound.upper), error)
    best = program.solve(np.full(counts.bins, error))[0]
    low, high = 0.0, 1.0
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    # the least epsilon is not convex in f: the best of all that were looked at is kept
    seen = {f: program.solve(np.full(counts.bins, f * error)) for f in (left, right)}
    for _ in range(max(0, steps - 3)):
        if seen[left][0].epsilon <= seen[right][0].epsilon:
            high, right = right, left
            left = tried = high - GOLDEN * (high - low)
        else:
            low, left = left, right
            right = tried = low + GOLDEN * (high - low)
        seen[tried] = program.solve(np.full(counts.bins, tried * error))
    current = min(seen.values(), key=lambda each: each[0].epsilon)
    best = min((best, current[0]), key=lambda each: each.epsilon)
    step = 0.3
    for _ in range(refinements):
        scale = np.clip(current[0].scale * np.exp(-step * _direction(current[1])), 1e-3 * error, error)
        moved = program.solve(scale)
        if moved[0].epsilon < best.epsilon * (1 - 1e-9):
            best, current = moved[0], moved
        else:
            step /= 2
    return best


def _direction(slope: FloatArray) -> FloatArray:
    """The slope of epsilon in log b, scaled to at most 1."""
    largest = float(np.abs(slope).max(initial=0.0))
    return slope / largest if largest > 0 else slope


class _Program:
    """The LP for the same counts and error; only b changes between solutions."""

    def __init__(self, counts: Counts, upper: float, error: float) -> None:
        self._counts, self._error = counts, error
        self._change = upper * counts.count / counts.samples_per_bin[counts.bin_index]
        self._total = np.bincount(counts.bin_index, weights=self._change, minlength=counts.bins)

    def solve(self, scale: FloatArray) -> tuple[Joint, FloatArray]:
        """Return the best clipping ranges at the Laplace scales ``scale`` (G,), and d epsilon / d ln
        scale, (G,).
        """
        from scipy.optimize import linprog

        o = self._counts
        pairs, column = o.pairs, np.arange(o.pairs)
        price = self._change / scale[o.bin_index]
        row = np.concatenate([o.user_index, o.users + o.bin_index, np.arange(o.users)])
        at = np.concatenate([column, column, np.full(o.users, pairs)])
        value = np.concatenate([price, -self._change / 2, -np.ones(o.users)])
        matrix = sparse.csr_matrix((value, (row, at)), shape=(o.users + o.bins, pairs + 1))
        least = self._total / 2 - (self._error - scale)
        cost = np.zeros(pairs + 1)
        cost[-1] = 1.0
        limits = np.column_stack([np.zeros(pairs + 1), np.append(np.ones(pairs), np.inf)])
        solver: Any = linprog
        result = solver(
            cost,
            A_ub=matrix,
            b_ub=np.concatenate([np.zeros(o.users), -least]),
            bounds=limits,
            method="highs-ipm",
        )
        if result.status != 0:
            raise UsageError("the program of ranges and scales has no solution", got=str(result.message))
        share = self._feasible(np.clip(np.asarray(result.x[:pairs]), 0.0, 1.0), least)
        paid = np.bincount(o.user_index, weights=price * share, minlength=o.users)
        duals = np.asarray(result.ineqlin.marginals)
        worth = -duals[: o.users][o.user_index] * price * share
        by_bin = np.bincount(o.bin_index, worth, o.bins)
        slope = -by_bin + -duals[o.users :] * scale
        return Joint(share, scale, float(paid.max(initial=0.0))), slope

    def _feasible(self, share: FloatArray, least: FloatArray) -> FloatArray:
        """Widen ranges until no bin misses its bias by the solver's tolerance; what is lost is counted."""
        o = self._counts
        have = np.bincount(o.bin_index, weights=self._change / 2 * share, minlength=o.bins)
        room = self._total / 2 - have
        missing = np.maximum(least - have, 0.0)
        lift = np.divide(missing, room, out=np.zeros_like(room), where=room > 0)
        return share + np.minimum(lift, 1.0)[o.bin_index] * (1 - share)
