"""Estimates by block noise, the means made consistent with noisy means over their H3 parents.

Theorem (REPLACE_USER_VALUES). A parent's integer is the sum of those of its children, so vehicle l moves it
by at most K m_{P,l}, m_{P,l} its records in all of them: it is one more item of a block, and what all the
draws cost is ``block_loss_per_user`` over the G bins and P parents (``blocks.estimates``). All that follows
is post-processing of these draws: exact least squares over every parent and its children
(``tree``), on numbers that are not clamped, with the variances of the block noise,
s^2 (d + 1)(d + 2)/3 times the squares of the half widths; then clamping. Parents are not published.

Intervals. Two hold with the level asked for: the interval of the number before consistency, around that
number, and one around the consistent number, whose error combines the noises of its family
(``parent_gain``, ``noise.block_combination``). Which is published is decided by their half widths,
that is by counts and the lattice alone; the first is made longer where it does not hold the consistent
number.

Errors. E|clip(c^) - t| <= E min(|c^ - f|, R/2) + |f - t| as for one noise, because the combination is
symmetric too; ``noise.block_combination`` bounds the first term.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.estimates import (
    BlockNoise,
    Spread,
    block_columns,
    block_estimate,
    interval_half_width,
    spread_of,
    unclamped,
)
from trafficdp.mechanisms.blocks.lattice import BlockLattice
from trafficdp.mechanisms.consistent.parent_gain import Combination, combine, combined_bias
from trafficdp.mechanisms.consistent.parents import Parents
from trafficdp.mechanisms.consistent.tree import Tree, make_consistent
from trafficdp.mechanisms.laplace.lattice import exact_integer
from trafficdp.mechanisms.publish import Drawn, estimate, rounding_bias
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.block_combination import combination_absolute_error, combination_half_width
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FamilySpread:
    """The noise of the means of G bins with P parents, from counts and the lattice alone.

    ``raw`` is that of the numbers as they are drawn, G bins and P parents; ``final`` that of the G consistent
    ones, bounds where there is a parent; ``bias`` (C,) that of the consistent children.
    """

    counts: Counts
    bound: ContributionBound
    lattice: BlockLattice
    parents: Parents
    raw: Spread
    final: Spread
    combination: Combination
    bias: FloatArray

    def half_widths(self, level: float) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return the half width of every interval, shape (G,), and which lie around the consistent number."""
        bins = len(self.parents.of)
        width = interval_half_width(Statistic.MEAN, self.bound, self.lattice, self.raw, level)[:bins]
        around = np.zeros(bins, dtype=np.bool_)
        children = self.parents.children
        if len(children):
            size = self.lattice.sizes[self.raw.item[children]]
            spread = self.combination.spread
            own = combination_half_width(spread, size, self.lattice.scale, 1 - level) + self.bias
            around[children] = own < width[children]
            width[children] = np.minimum(own, width[children])
        return width, around


def family_spread(
    counts: Counts, bound: ContributionBound, lattice: BlockLattice, parents: Parents
) -> FamilySpread:
    """Return the noise of the means; ``lattice`` names parent p as bin G + p."""
    bins, children, reach = counts.bins, parents.children, float(Statistic.MEAN.largest(bound.upper))
    raw = spread_of(Statistic.MEAN, parents.beside(counts), bound, lattice)
    half = np.zeros(len(raw.item))
    half[raw.noisy] = lattice.half_width[raw.item[raw.noisy]] * raw.unit[raw.noisy]
    found = combine(parents, counts.samples_per_bin, half)
    flooring = combined_bias(parents, counts.samples_per_bin, found, raw.flooring)
    bias = flooring + rounding_bias(Statistic.MEAN, bound)
    size = lattice.sizes[raw.item[children]]
    noise = combination_absolute_error(found.absolute, size, lattice.scale, np.full(len(children), reach / 2))
    final = raw.first(bins)
    scale, error = final.scale.copy(), final.error.copy()
    scale[children] = found.absolute * (lattice.scale * (size + 1) + 1.5)
    error[children] = np.minimum(noise + bias, reach)
    final = replace(final, scale=scale, error=error)
    return FamilySpread(counts, bound, lattice, parents, raw, final, found, bias)


def consistent_values(family: FamilySpread, raw: FloatArray) -> FloatArray:
    """Return the consistent numbers of G bins from the noisy ones of G bins and P parents, not clamped."""
    parents, lattice = family.parents, family.lattice
    bins, children = len(parents.of), parents.children
    samples = family.counts.samples_per_bin[children]
    whole = np.zeros(parents.number, dtype=np.int64)
    np.add.at(whole, parents.of[children], samples)
    nodes = np.concatenate([children, bins + np.arange(parents.number)])
    above = len(children) + parents.of[children]
    tree = Tree(
        np.concatenate([above, np.full(parents.number, -1, dtype=np.int64)]),
        np.concatenate([samples, whole]),
    )
    item = family.raw.item[nodes]
    d, half = lattice.sizes[item], lattice.half_width[item] * family.raw.unit[nodes]
    variance = (half * lattice.scale) ** 2 * (d + 1) * (d + 2) / 3
    value = raw[:bins].copy()
    value[children] = make_consistent(tree, raw[nodes], variance).value[: len(children)]
    return value


def consistent_estimates(
    contributions: Contributions,
    lattice: BlockLattice,
    parents: Parents,
    statistics: tuple[Statistic, ...],
    noise: BlockNoise,
    *,
    interval_level: float,
    uninformative_above: float,
) -> dict[Statistic, Estimate]:
    """Draw the noise of all blocks once and return the estimates of all bins, MEAN before VARIANCE.

    Two-sided intervals hold the sample statistic of the clipped speeds with at least ``interval_level``.
    """
    counts, bound = contributions.counts, contributions.bound
    blocks = len(np.unique(lattice.block))
    drawn = np.zeros(0, dtype=np.int64)
    if blocks:
        drawn = noise(lattice.half_width, lattice.block, np.full(blocks, lattice.scale))
    estimates: dict[Statistic, Estimate] = {}
    for statistic in sorted(statistics, key=list(Statistic).index):
        if statistic is Statistic.MEAN:
            family = family_spread(counts, bound, lattice, parents)
            estimates[statistic] = _means(contributions, family, drawn, interval_level, uninformative_above)
            continue
        estimates[statistic] = block_estimate(
            statistic,
            contributions,
            lattice,
            spread_of(statistic, counts, bound, lattice),
            drawn,
            interval_level,
            uninformative_above,
            estimates.get(Statistic.MEAN),
        )
    return estimates


def _means(
    contributions: Contributions,
    family: FamilySpread,
    drawn: IntArray,
    interval_level: float,
    uninformative_above: float,
) -> Estimate:
    parents, bound, statistic = family.parents, contributions.bound, Statistic.MEAN
    bins = len(parents.of)
    integers = exact_integer(statistic, contributions)
    above = np.zeros(parents.number, dtype=object)
    np.add.at(above, parents.of[parents.children], integers[parents.children])
    raw = unclamped(np.concatenate([integers, above]), family.lattice, family.raw, drawn)
    final = consistent_values(family, raw)
    width, around = family.half_widths(interval_level)
    numbers = Drawn(
        value=final,
        centre=np.where(around, final, raw[:bins]),
        half_width=width,
        noise_scale=family.final.scale,
        expected_error=family.final.error,
        noise=block_columns(family.final, family.lattice),
    )
    return estimate(statistic, numbers, bound, uninformative_above)
