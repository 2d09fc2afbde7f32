"""Error over time of every algorithm for continual means, on one stream and at one privacy loss.

For experiments: noise is simulated, the truth is looked at, and two kinds of algorithm get what nobody
has in practice, marked "given": a prior within U/sqrt(m) of the mean for nothing, as the paper assumes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.model import NeighbouringRelation
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.loss import PureDP
from trafficdp.research.george_2022 import better_means, paper_means
from trafficdp.research.george_2022.arrivals import Arrivals, LevelPlan, best_plan, paper_plan, prior_plan
from trafficdp.research.george_2022.factor import LONGEST, BinnedFactor, GaussianSums, square_root_factor
from trafficdp.stream.tree import best_tree

Run = Callable[[NoiseSource, int, IntArray], FloatArray]
"""Released means of ``runs`` runs after ``at`` samples, shape (runs, K), in steps."""
LONGEST_GAUSSIAN = 200_000
"""Longer streams are not run with a factor over all samples: it takes its steps one by one."""


@dataclass(frozen=True)
class Method:
    """A method to compare: its ``name`` in the tables, its ``guarantee`` for a vehicle over the whole stream.

    ``run`` returns the released means.
    """

    name: str
    guarantee: str
    run: Run


def exact_mean(arrivals: Arrivals) -> Fraction:
    """Return the exact mean of all values, without privacy: a perfect prior, for comparison alone."""
    return Fraction(int(arrivals.value.sum()), max(len(arrivals), 1))


def paper_methods(arrivals: Arrivals, epsilon: float, failure: float) -> list[Method]:
    """Return the paper's Algorithms 2 to 6 at pure ``epsilon``.

    ``failure`` is its delta, about accuracy only.
    """
    n, m, u = arrivals.users, arrivals.samples, arrivals.upper_steps
    pure, prior = f"{epsilon:g}", exact_mean(arrivals)
    given = prior_plan(n, m, u, epsilon, failure)
    free = prior_plan(n, m, u, epsilon, failure, prior=False)
    paper = paper_plan(n, m, u, epsilon, failure)
    centre = paper_means.Centre.at(prior)
    centres = [centre if each else None for each in given.truncated]
    half = paper_means.known_prior_half_width(n, m, u, failure)
    of_all = paper_means.naive_scale(n, m, u, epsilon)
    of_whole = paper_means.known_prior_scale(n, m, u, epsilon, failure)
    of_given, of_free = (paper_means.single_scale(each, epsilon) for each in (given, free))
    return [
        Method("A2", pure, partial(paper_means.naive_means, arrivals, of_all)),
        Method(
            "A3, prior given", pure, partial(paper_means.known_prior_means, arrivals, prior, half, of_whole)
        ),
        Method(
            "A4, prior given",
            pure,
            partial(paper_means.single_means, arrivals, given, of_given, centre=centre),
        ),
        Method("A4, no prior", pure, partial(paper_means.single_means, arrivals, free, of_free)),
        Method(
            "A5, prior given", pure, partial(paper_means.levelled_means, arrivals, given, centres=centres)
        ),
        Method("A5, no prior", pure, partial(paper_means.levelled_means, arrivals, free)),
        Method("A6", pure, partial(paper_means.full_means, arrivals, paper)),
    ]


def better_methods(arrivals: Arrivals, epsilon: float, failure: float, delta: str) -> list[Method]:
    """Return methods that improve on the paper: at pure ``epsilon``, and at (``epsilon``, ``delta``) by
    zCDP.
    """
    n, m, u = arrivals.users, arrivals.samples, arrivals.upper_steps
    pure, approximate = f"{epsilon:g}", f"({epsilon:g}, {delta})"
    best = best_plan(n, m, u, epsilon, failure)
    free = prior_plan(n, m, u, epsilon, failure, prior=False)
    guess = max(1, n // 4), max(1, m // 4)
    of_users, of_samples, of_elements = best_tree(n), best_tree(n * m, m), best_tree(n * len(free.width))
    of_all = paper_means.naive_scale(n, m, u, epsilon, of_samples)
    of_free = paper_means.single_scale(free, epsilon, of_elements)
    rho = approx_to_rho(
        ApproxDP(PureDP.of(epsilon).pico, Fraction(delta)), NeighbouringRelation.REPLACE_USER_VALUES
    )

    def plan(users: int, samples: int, part: float) -> LevelPlan:
        return best_plan(users, samples, u, part, failure)

    def unknown(source: NoiseSource, runs: int, at: IntArray) -> FloatArray:
        return better_means.doubling_means(
            arrivals, str(epsilon), plan, source, runs, at, start=guess, tree=of_users
        )[0]

    def gaussian_levels(source: NoiseSource, runs: int, at: IntArray) -> FloatArray:
        return better_means.gaussian_levelled_means(arrivals, free, rho, _sums(n), source, runs, at)[0]

    def gaussian(source: NoiseSource, runs: int, at: IntArray) -> FloatArray:
        return better_means.gaussian_naive_means(arrivals, rho, BinnedFactor(n * m), source, runs, at)[0]

    full = partial(paper_means.full_means, arrivals, best)
    methods = [
        Method("A6, medians and budgets chosen", pure, full),
        Method("A6, best tree as well", pure, partial(full, tree=of_users)),
        Method("A6, best tree, doubling from a quarter", pure, unknown),
        Method(
            "A5, best tree, endless shares from a quarter",
            pure,
            partial(better_means.unbounded_means, arrivals, epsilon, guess, of_users),
        ),
        Method(
            "A4, no prior, best tree",
            pure,
            partial(paper_means.single_means, arrivals, free, of_free, tree=of_elements),
        ),
        Method("A2, best tree", pure, partial(paper_means.naive_means, arrivals, of_all, tree=of_samples)),
        Method("levels, matrix factor", approximate, gaussian_levels),
    ]
    if n * m <= LONGEST_GAUSSIAN:
        methods.append(Method("all samples, matrix factor in little memory", approximate, gaussian))
    return methods


def errors_over_time(
    arrivals: Arrivals, method: Method, source: NoiseSource, runs: int, at: IntArray
) -> FloatArray:
    """Return the mean absolute error of ``method`` after ``at`` (K,) samples, in units of U, shape (K,).

    Against the exact mean of the samples so far, over ``runs`` simulated runs.
    """
    released = method.run(source, runs, at)
    truth = arrivals.running_mean()[at - 1]
    return np.asarray(np.abs(released - truth).mean(axis=0) / arrivals.upper_steps)


def lower_bound_curve(arrivals: Arrivals, epsilon: float, at: IntArray) -> FloatArray:
    """Return the rate of the lower bound on the error after ``at`` (K,) samples, in units of U, shape (K,).

    1/(n_t sqrt(m_t) epsilon) with n_t vehicles and t/n_t = m_t samples a vehicle so far; the constant is 1
    (Liu et al. 2020, Theorem 3; paper 002, section 5).
    """
    first = np.cumsum(arrivals.rank == 1)[at - 1]
    return np.asarray(1 / (first * np.sqrt(at / first) * epsilon))


def _sums(length: int) -> GaussianSums:
    return square_root_factor(length) if length <= LONGEST else BinnedFactor(length)
