"""Continual means beyond paper 002: Gaussian noise, variances, unknown numbers, sliding windows.

Continual means with Gaussian noise from matrix factorisations, under zCDP: Algorithms 2 and 5 with it.

Losses rho add up over levels; the summed variance of the levels is proportional to sum W_l^2/rho_l, least for
rho_l proportional to W_l. For (eps, delta) convert once, by name (``privacy.conversion``).

Variance beside the mean: a second stream that costs nothing if its noise is u times the first's.

Let x in 0..u be a sample and y = x (u - x), in 0..u^2/4. One sample in nodes of scale e_1 (sums of x) and e_2
(sums of y) costs, a node, exactly (``measurement.sets``)

    max over d in 0..u of  d/e_1 + d (u - d)/e_2.

It is concave in d with its top at (u + e_2/e_1)/2. For e_2 >= u e_1 the largest d = u wins, where y does not
move: the price is u/e_1, that of the mean alone. Sums over a vehicle's samples and nodes add. (The pair
(x, x^2), each at half of the budget, would cost twice as much for the same noise on the mean.)

With N samples the variance is v = m (u - m) - (sum y)/N, m = (sum x)/N; released values are clipped to
m in [0, u] and v in [0, m (u - m)] (Bhatia and Davis).

Continual means when the number of vehicles or samples is not known: start again with twice as many.

Epoch i = 1, 2, ... declares n_i vehicles and m_i samples and has the budget 6 eps/(pi^2 i^2). When a vehicle
too many comes, or a vehicle sends a sample too many, both numbers double (which are public facts; doubling
one alone makes more epochs, and each of them costs more than a number that is too large). The new epoch is
fed all samples from the first on. Every vehicle pays for every epoch, less than eps in all, whatever comes.

Algorithm 5 without declared numbers and without starting again: shares that go on for ever.

``doubling`` pays for every epoch. Here each level l = 0, 1, 2, ... has a share a_l of epsilon, and each
height j = 0, 1, 2, ... of its tree a share b_j of that, so that eta_(l,j) = u B_l/(eps a_l b_j). A vehicle
has at most one element a level, in at most one node a height, so its loss is at most
eps (sum a)(sum b) <= eps, however many vehicles and samples come. Levels and heights up to a guess share
1 - RESERVE; the i-th beyond it has RESERVE 6/(pi^2 i^2). A right guess costs a factor 1/(1 - RESERVE)^2 in
noise, a wrong one is answered all the same.

Sums over the last R steps ("the last hour"), with a fresh budget for every R steps.

Steps 1, 2, ... are cut into blocks of R; every block has a tree of its own over its R step totals. Step s
is number r of block c; its window holds steps r + 1 .. R of block c - 1 and 1 .. r of block c, so that with
P_c(r) the noisy sum of the first r steps of block c the answer is

    P_c(r) + P_(c-1)(R) - P_(c-1)(r).

Nodes in both of the last two cancel. Nothing older is kept, and no noise grows with time.

*Privacy.* A record is in one step, hence in one block: moving it by at most u costs u touches/eta,
``nodes_per_step`` at most H. A vehicle with at most ``records`` records a block loses at most u records H /
eta a block: with eta = u records H / eps, eps for every block it drives in, at most 2 eps for what one window
shows. Blocks add up: the ledger's account of a vehicle is ``loss_per_vehicle``, exact from public counts.
(Elements may not depend on what was published if the tree is signed: ``tree``.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError, integer_between, positive
from trafficdp.measurement.nodes import exact_price
from trafficdp.mechanisms.means import laplace_scale
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import PICO, ZCDP, PureDP, loss_upper_bound, round_up, sum_per_user, to_pico
from trafficdp.research.george_2022 import arrivals as george_2022_arrivals
from trafficdp.research.george_2022.factor import GaussianSums, gaussian_loss, gaussian_sd
from trafficdp.research.george_2022.paper_means import full_means, means_with_noise, running_sum
from trafficdp.stream.tree import BINARY, Tree, TreeKind, bit_length


def gaussian_naive_means(
    arrivals: george_2022_arrivals.Arrivals,
    rho: ZCDP,
    sums: GaussianSums,
    source: NoiseSource,
    runs: int,
    at: IntArray,
) -> tuple[FloatArray, ZCDP]:
    """Return the means released after ``at`` (K,) samples, (runs, K), and a vehicle's loss, at most ``rho``.

    One running sum of all samples with Gaussian noise ``sums``; a vehicle's samples may come at any time.
    """
    sd = gaussian_sd(sums, arrivals.upper_steps, arrivals.samples, rho)
    total = running_sum(arrivals.value, at)
    noise = sums.path(at, sd, source, runs)
    means = np.clip((total + noise) / at, 0, arrivals.upper_steps)
    return means, gaussian_loss(sums, arrivals.upper_steps, arrivals.samples, sd)


def gaussian_levelled_means(
    arrivals: george_2022_arrivals.Arrivals,
    plan: george_2022_arrivals.LevelPlan,
    rho: ZCDP,
    sums: GaussianSums,
    source: NoiseSource,
    runs: int,
    at: IntArray,
) -> tuple[FloatArray, ZCDP]:
    """Return the means released after ``at`` (K,) samples, (runs, K), and a vehicle's loss, at most ``rho``.

    Withhold-release with Gaussian noise ``sums``, one running sum a level; means are in steps. Levels share
    rho by their widths in ``plan``.
    """
    share = plan.width / plan.width.sum()
    each = [ZCDP(int(rho.pico * part)) for part in share]
    sd = [gaussian_sd(sums, int(width), 1, part) for width, part in zip(plan.width, each, strict=True)]

    def path(level: int, fed: IntArray) -> FloatArray:
        return sums.path(fed, sd[level], source, runs)

    loss = ZCDP(0)
    for width, spread in zip(plan.width, sd, strict=True):
        loss = loss + gaussian_loss(sums, int(width), 1, spread)
    return means_with_noise(arrivals, plan, path, at), loss


def second_scale(upper_steps: int, first: FloatArray) -> FloatArray:
    """Return the noise scale of the second sums, ``upper_steps`` times ``first``, the scale of the sums,
    rounded up.

    It is the least at which the second sums add nothing to a vehicle's loss.
    """
    return round_up(upper_steps * first)


def moments_loss(plan: george_2022_arrivals.LevelPlan, tree: Tree = BINARY) -> PureDP:
    """Return the epsilon that ``levelled_moments`` costs a vehicle, rounded up: equal to that of the
    means alone.
    """
    price = int(tree.nodes_per_element(plan.users).max())
    total = Fraction(0)
    first = plan.scales(tree)
    for size, one, two in zip(plan.size, first, second_scale(plan.upper_steps, first), strict=True):
        total += int(size) * price * exact_price(plan.upper_steps, Fraction(float(one)), Fraction(float(two)))
    return PureDP(-(-total.numerator * PICO // total.denominator))


def levelled_moments(
    arrivals: george_2022_arrivals.Arrivals,
    plan: george_2022_arrivals.LevelPlan,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    tree: Tree = BINARY,
) -> tuple[FloatArray, FloatArray]:
    """Return released means (steps) and variances (steps^2) after ``at`` (K,) samples, each (runs, K).

    One counter a level and moment, nothing truncated. Before there is an element: u/2 and u^2/8.
    Raises UsageError for a plan that truncates.
    """
    if bool(plan.truncated.any()) or bool(np.any(plan.median_epsilon > 0)):
        raise UsageError(
            "variances cannot be had from truncated elements",
            expected="a plan without medians and without a prior",
        )
    u = plan.upper_steps
    both = np.stack([arrivals.value, arrivals.value * (u - arrivals.value)], axis=1)
    elements = george_2022_arrivals.WithholdRelease(arrivals.users, columns=2).append(arrivals.user, both)
    first = plan.scales(tree)
    scales = np.stack([first, second_scale(u, first)], axis=1)
    sums = np.zeros((2, runs, len(at)))
    contained = np.zeros(len(at), dtype=np.int64)
    for level in range(len(plan.width)):
        mine = elements.level == level
        fed = np.searchsorted(elements.sample[mine], at)
        contained += int(plan.size[level]) * fed
        for moment in range(2):
            noise = tree.draw_noise(fed, plan.users, float(scales[level, moment]), source, runs)
            sums[moment] += running_sum(elements.value[mine, moment], fed) + noise
    there = contained > 0
    mean = np.clip(np.where(there, sums[0] / np.maximum(contained, 1), u / 2), 0, u)
    least = mean * (u - mean)
    variance = np.clip(least - sums[1] / np.maximum(contained, 1), 0, least)
    return mean, np.where(there, variance, u**2 / 8)


Planner = Callable[[int, int, float], george_2022_arrivals.LevelPlan]
"""From most vehicles, most samples and epsilon to the levels of an epoch."""


@dataclass(frozen=True)
class Epoch:
    """Samples ``first`` .. ``last`` (1-based) are answered by a plan of ``users`` and ``samples``."""

    first: int
    last: int
    users: int
    samples: int


def epochs(user: IntArray, users: int, samples: int) -> list[Epoch]:
    """Return the epochs of a stream whose declared numbers of vehicles and of samples double when passed.

    ``user`` (T,) is the vehicle of each arrival; the first epoch has ``users`` vehicles of ``samples``
    samples. Both numbers may double several times at once.
    """
    found: list[Epoch] = []
    if not len(user):
        return found
    arrivals = numbered_by_arrival(user, np.zeros(len(user), dtype=np.int64), 1)
    seen = np.maximum.accumulate(arrivals.user) + 1
    most = np.maximum.accumulate(arrivals.rank)
    begin = 0
    while begin < len(user):
        while seen[begin] > users or most[begin] > samples:
            users, samples = 2 * users, 2 * samples
        end = min(int(np.searchsorted(seen, users + 1)), int(np.searchsorted(most, samples + 1)))
        found.append(Epoch(begin + 1, end, users, samples))
        begin = end
    return found


def numbered_by_arrival(user: IntArray, value: IntArray, upper_steps: int) -> george_2022_arrivals.Arrivals:
    """Return the stream as ``Arrivals``, its vehicles numbered 0, 1, 2, ... by first arrival.

    The declared numbers of vehicles and samples are those that occur in the stream.
    """
    _, first, which = np.unique(user, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    numbered = rank[which]
    return george_2022_arrivals.Arrivals(
        numbered, value, len(first), int(np.bincount(numbered).max()), upper_steps
    )


def doubling_means(
    arrivals: george_2022_arrivals.Arrivals,
    epsilon: str | float | Fraction,
    plan: Planner,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    *,
    start: tuple[int, int] = (1, 1),
    tree: Tree = BINARY,
) -> tuple[FloatArray, PureDP]:
    """Return the means released after ``at`` (K,) samples, (runs, K), and the epsilon of all epochs together.

    No numbers of vehicles or samples are declared: each epoch has twice the numbers of the one before, from
    ``start``, and is planned by ``plan``.
    """
    own = numbered_by_arrival(arrivals.user, arrivals.value, arrivals.upper_steps)
    result = np.full((runs, len(at)), arrivals.upper_steps / 2)
    spent = PureDP(0)
    for number, epoch in enumerate(epochs(own.user, *start), start=1):
        budget = george_2022_arrivals.doubling_epsilon(epsilon, number)
        levels = plan(epoch.users, epoch.samples, float(budget.exact))
        part = george_2022_arrivals.Arrivals(
            own.user[: epoch.last], own.value[: epoch.last], epoch.users, epoch.samples, own.upper_steps
        )
        inside = (at >= epoch.first) & (at <= epoch.last)
        result[:, inside] = full_means(part, levels, source, runs, at[inside], tree)
        spent = spent + levels.loss(tree)
    return result, spent


RESERVE = 0.2
INVERSE_SQUARES = 0.6079271
"""Less than 6/pi^2."""


def endless_shares(weight: npt.NDArray[np.floating], count: int) -> FloatArray:
    """Return the first ``count`` of infinitely many shares that add up to at most 1.

    ``weight`` (n,) > 0 divides 1 - RESERVE among the first n; decreasing shares follow.
    """
    beyond = np.arange(1, max(count - len(weight), 0) + 1)
    guessed = weight / weight.sum() * (1 - RESERVE)
    return np.concatenate([guessed, RESERVE * INVERSE_SQUARES / beyond**2])[:count]


def unbounded_means(
    arrivals: george_2022_arrivals.Arrivals,
    epsilon: float,
    guess: tuple[int, int],
    tree: Tree,
    source: NoiseSource,
    runs: int,
    at: IntArray,
) -> FloatArray:
    """Return the means released after ``at`` (K,) samples, in steps, (runs, K), without declared numbers.

    ``guess``: a guess of the number of vehicles and of samples a vehicle. Raises UsageError for averaged
    trees.
    """
    users, samples = (integer_between(1, 2**40, guess=each) for each in guess)
    own = numbered_by_arrival(arrivals.user, arrivals.value, arrivals.upper_steps)
    levels = int(bit_length(own.samples))
    size = george_2022_arrivals.level_size(np.arange(levels))
    guessed = george_2022_arrivals.level_size(np.arange(george_2022_arrivals.last_level(samples) + 1))
    share = endless_shares(guessed ** (2 / 3), levels)
    inside = endless_shares(np.ones(tree.heights(users)), tree.heights(own.users))
    scales = laplace_scale(
        own.upper_steps * size[:, None], positive(epsilon=epsilon) * share[:, None] * inside
    )
    plan = george_2022_arrivals.prior_plan(own.users, own.samples, own.upper_steps, epsilon, 0.5, prior=False)

    def path(level: int, fed: IntArray) -> FloatArray:
        return tree.draw_noise(fed, own.users, scales[level], source, runs)

    return means_with_noise(own, plan, path, at)


LONGEST = 2_000


@dataclass(frozen=True)
class SlidingWindow:
    """Windows of ``steps`` R steps on trees of one kind. Raises UsageError for AVERAGED trees."""

    steps: int
    tree: Tree

    def __post_init__(self) -> None:
        integer_between(1, LONGEST, steps=self.steps)
        if self.tree.kind is TreeKind.AVERAGED:
            raise UsageError("windows are not made of averaged nodes", expected="a plain or signed tree")

    @cached_property
    def nodes_per_step(self) -> IntArray:
        """How many nodes hold each step of a block, shape (R,)."""
        return self.tree.nodes_per_element(self.steps)

    @property
    def price(self) -> int:
        """The largest number of nodes that hold one step."""
        return int(self.nodes_per_step.max())

    def variance(self) -> FloatArray:
        """Return the noise variance of the window that ends with step r = 1..R of a block, over that of a
        node, (R,).
        """
        at = np.arange(self.steps + 1)
        ends, starts = self.tree.edges(at, self.steps)
        left = np.zeros(self.steps + 1)
        for end, start in zip(ends, starts, strict=True):
            node = np.arange(max(int(end.max()), int(start.max())))
            added = (node >= start[:, None]) & (node < end[:, None])
            taken = (node >= end[:, None]) & (node < start[:, None])
            coefficient = added.astype(np.int64) - taken
            left += ((coefficient[-1] - coefficient) ** 2).sum(axis=1)
        return (self.tree.variance(at, self.steps) + left)[1:]

    def mean_error(self) -> float:
        """Return the root mean square error of a block's windows at epsilon 1, for one record of 0..1 a
        block.
        """
        return float(self.price * np.sqrt(2 * self.variance().mean()))

    def scale(self, records: int, upper_steps: int, epsilon: float) -> float:
        """Return the nodes' Laplace scale for up to ``records`` records of 0..``upper_steps`` of a vehicle a
        block.

        ``upper_steps`` times records times ``price``, over epsilon, or a little more.
        """
        price = np.array([upper_steps * integer_between(1, 10**9, records=records) * self.price])
        return float(laplace_scale(price, np.array([epsilon]))[0])

    def sums(self, total: IntArray, scale: float, source: NoiseSource, runs: int = 1) -> FloatArray:
        """Return the noisy sum of the last R steps after every step, shape (runs, S).

        ``total`` (S,) are the exact sums of the steps, and ``scale`` is that of the nodes' Laplace noise.
        Before R steps have passed it is the sum of all so far.
        """
        length, size = len(total), self.steps
        blocks = -(-length // size)
        exact = np.concatenate([[0], np.cumsum(total)])
        at = np.arange(1, length + 1)
        window = exact[at] - exact[np.maximum(at - size, 0)]
        whole = np.arange(size + 1)
        # row 0: nothing happened before the first block
        noise = np.zeros((blocks + 1, runs, size + 1))
        for block in range(blocks):
            noise[block + 1] = self.tree.draw_noise(whole, size, scale, source, runs)
        own, place = (at - 1) // size, (at - 1) % size + 1
        drawn = noise[own + 1, :, place] + noise[own, :, -1] - noise[own, :, place]
        return np.asarray(window + drawn.T)

    def loss_per_vehicle(
        self, user: IntArray, step: IntArray, upper_steps: int, scale: float, users: int
    ) -> IntArray:
        """Return every vehicle's privacy loss over all blocks, in 10^-12 epsilon, rounded up, shape (users,).

        ``user`` and ``step`` (1, 2, ...) are those of all records, shape (F,), and public; a record is
        0..``upper_steps``.
        """
        price = upper_steps * self.nodes_per_step[(step - 1) % self.steps]
        each = to_pico(loss_upper_bound(price.astype(np.float64), np.full(len(price), scale)))
        return sum_per_user(each, user, users)


def best_window(steps: int) -> SlidingWindow:
    """Return the tree, of all arities, with the least root mean square error of windows of ``steps``
    steps.
    """
    arities = sorted({*range(2, min(steps, 40) + 2), steps + 1})
    trees = [Tree(arity) for arity in arities if arity >= 2]
    trees += [Tree(arity, TreeKind.SIGNED) for arity in arities if arity % 2]
    return min((SlidingWindow(steps, tree) for tree in trees), key=SlidingWindow.mean_error)
