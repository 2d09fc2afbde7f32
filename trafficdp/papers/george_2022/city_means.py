"""Continual means of many bins at once: Algorithm 5 of paper 002 in every bin, priced for every vehicle.

Each (bin, vehicle) pair withholds and releases its samples (``withhold``); its elements enter the counters of
its bin, one a level (``signed_counter``). A bin's mean is the sum of its noisy level sums over the
samples in them. Nothing is truncated, so W_l = u B_l.

*Joint price.* Element e of vehicle l at place t_e in the counter of bin g and level j is moved by at most
u B_j and lies in nodes_touched(t_e) noisy nodes of scale eta_(g,j). All bins and all publications
together cost vehicle l exactly

    sum over its elements of u B_j nodes_touched(t_e) / eta_(g,j)

(all nodes are independent Laplace draws, and all its samples moving from 0 to U attain it as the trees
fill), whatever number of publications there is. Not the number of bins times the dearest. Places, levels and
bins are public. ``loss_per_vehicle`` sums it in whole 10^-12; a caller that must not pass a budget asks
``price_of_next`` before letting samples in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp._validate import integer_between
from trafficdp.measurement.nodes import SignedCounterBank, signed_nodes_touched
from trafficdp.mechanisms.scales import laplace_scale
from trafficdp.noise.source import NoiseSource
from trafficdp.papers.george_2022.withhold import WithholdRelease, level_size
from trafficdp.privacy.loss import loss_upper_bound, to_pico

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PricedElements:
    """Elements that entered counters, shape (E,): whose ``pair``, and ``loss``, an upper bound in epsilon."""

    pair: IntArray
    loss: FloatArray


def equal_scales(steps: int, samples: int, heights: int, bins_per_vehicle: int, epsilon: float) -> FloatArray:
    """Return eta of every level, shape (L + 1,), at which a vehicle cannot pay more than ``epsilon``.

    For vehicles with at most ``samples`` samples in each of at most ``bins_per_vehicle`` bins: every bin
    gets epsilon over that number, every level a share by B_l^(2/3), every element all H nodes.
    """
    last = integer_between(1, 2**40, samples=samples).bit_length() - 1
    size = level_size(np.arange(last + 1))
    share = size ** (2 / 3) / (size ** (2 / 3)).sum()
    return laplace_scale(steps * size * heights, epsilon / bins_per_vehicle * share)


class CityMeans:
    """Means of ``bins`` bins from samples of 0..``steps``; ``scale`` (levels,) or (bins, levels).

    Trees of arity k and H heights: up to (k^H - 1)/2 vehicles a bin. Pairs are numbered by the caller, each
    in one bin. Raises UsageError as ``SignedCounterBank`` does.
    """

    def __init__(
        self, bins: int, pairs: int, steps: int, arity: int, heights: int, scale: FloatArray
    ) -> None:
        self.steps = integer_between(1, 10**6, steps=steps)
        self.samples = WithholdRelease(pairs)
        self.bank = SignedCounterBank(bins, np.shape(scale)[-1], arity, heights, scale)

    def append(self, pair: IntArray, pair_bin: IntArray, value: IntArray) -> PricedElements:
        """Take samples in the order of arrival, ``pair`` and ``value`` (T,); ``pair_bin`` (P,) of all pairs.

        Returns the elements that this released, with what they cost.
        """
        elements = self.samples.append(pair, value)
        where = pair_bin[elements.pair]
        price = self._price(where, elements.level, self.bank.positions(where, elements.level))
        self.bank.append(where, elements.level, elements.value)
        return PricedElements(elements.pair, price)

    def price_of_next(self, pair: IntArray, pair_bin: IntArray) -> FloatArray:
        """Return the most that the next element of each of these pairs can cost, shape of ``pair``."""
        count = self.samples.count[pair]
        level = np.ceil(np.log2(count + 1)).astype(np.int64)
        heights = np.full(len(pair), self.bank.heights)
        return self._loss(pair_bin[pair], level, heights)

    def publish(self, source: NoiseSource) -> FloatArray:
        """Draw what noise is needed and return all means in steps, clipped to [0, u], shape (bins,).

        u/2 where there is no sample yet. Publishing again without new samples gives the same numbers.
        """
        self.bank.draw(source)
        contained = self.contained()
        sums = self.bank.sums().sum(axis=1)
        means = np.where(contained > 0, sums / np.maximum(contained, 1), self.steps / 2)
        return np.clip(means, 0, self.steps)

    def contained(self) -> IntArray:
        """Return how many samples the counters of every bin hold, shape (bins,). Public."""
        size = level_size(np.arange(self.bank.levels))
        return np.asarray(self.bank.counts() @ size, dtype=np.int64)

    def _price(self, bin_index: IntArray, level: IntArray, position: IntArray) -> FloatArray:
        touched = signed_nodes_touched(position, self.bank.arity, self.bank.heights)
        return self._loss(bin_index, level, touched)

    def _loss(self, bin_index: IntArray, level: IntArray, touched: IntArray) -> FloatArray:
        scale = self.bank.scale[bin_index * self.bank.levels + level]
        moved = self.steps * level_size(level) * touched
        return loss_upper_bound(moved.astype(np.float64), scale)


def loss_per_vehicle(priced: PricedElements, pair_vehicle: IntArray, vehicles: int) -> IntArray:
    """Return every vehicle's loss over all bins in 10^-12 epsilon, rounded up once, shape (vehicles,)."""
    total = np.bincount(pair_vehicle[priced.pair], weights=priced.loss, minlength=vehicles)
    # E additions are off by at most E 2^-53 of the sum of positive numbers
    return to_pico(np.asarray(total * (1 + (len(priced.pair) + 1) * 2.0**-52), dtype=np.float64))
