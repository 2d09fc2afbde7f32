"""A source is asked for the scale that is priced, whatever is measured, chosen or appended."""

import numpy as np
import pytest

from trafficdp.measurement.laws import Block, EntryIndex, Gaussian, Laplace
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.measurement.sets import Box, Moments, Ranks, Step
from trafficdp.mechanisms.protocol import ClaimedNoise, ClaimedScores, ClaimedSums
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import PICO, LossKind, PureDP
from trafficdp.stream.tree import SignedCounterBank


def numbers(*values):
    return np.array(values, dtype=np.int64)


PLACES = EntryIndex(numbers(0, 1, 1), numbers(0, 0, 1), 2, 2)
SUMS = numbers(1_000_000, -2_000_000)


def metered(source, kind):
    """The waist, with more charged than anything here costs."""
    return PrivacyMeter(source, np.full(2, 10**15), kind)


class Heard(SimulatedNoise):
    """Adds 1 where noise would be, and keeps the scales that it was asked for."""

    def __init__(self):
        super().__init__(0)
        self.scales = []

    def _one(self, scale):
        self.scales += np.asarray(scale).tolist()
        return np.ones(len(scale), dtype=np.int64)

    def laplace(self, sums, scale):
        return sums + self._one(scale)

    def gaussian(self, sums, sd):
        return sums + self._one(sd)

    def discrete_laplace(self, scale):
        return self._one(scale)

    def block(self, half_width, block, scale):
        self.shape = half_width.tolist(), block.tolist()
        self._one(scale)
        return np.ones(len(half_width), dtype=np.int64)

    def choose(self, cost, weight, start, scale, runs=1):
        self.scales += scale.tolist()
        return super().choose(cost, weight, start, scale, runs)


@pytest.mark.parametrize("law", [Laplace(np.array([2.5, 7.0])), Gaussian(np.array([2.5, 7.0]))])
@pytest.mark.parametrize(
    "of", [Box(PLACES, numbers(9, 9, 9)), ClaimedSums(PLACES, numbers(9, 9, 9), "a theorem")]
)
def test_sums_get_one_draw_each_at_their_own_scale(law, of):
    heard = Heard()
    values = numbers(3, 4, 5) if isinstance(of, Box) else numbers(7, 5)
    assert Step(of, law).draw(heard, values).tolist() == [8, 6]
    assert heard.scales == [2.5, 7.0]


def test_pairs_of_sums_get_their_own_scales_in_their_order():
    heard, places = Heard(), EntryIndex(numbers(0, 0), numbers(0, 1), 1, 2)
    of = Moments(places, numbers(2, 1), 4, np.array([True, True]))
    law = Laplace(np.array([2.0, 3.0, 50.0, 70.0]))
    # records 1 and 2, and 3: sums of x and of x (4 - x)
    assert Step(of, law).draw(heard, np.array([[3, 3], [7, 3]])).tolist() == [4, 4, 8, 4]
    assert heard.scales == [2.0, 3.0, 50.0, 70.0]


def test_blocks_get_their_half_widths_and_one_scale():
    heard = Heard()
    law = Block(numbers(3, 2), numbers(1, 0), 5.5)
    assert Step(Box(PLACES, numbers(9, 9, 9)), law).draw(heard, numbers(3, 4, 5)).tolist() == [8, 6]
    assert heard.shape == ([3, 2], [1, 0])
    assert heard.scales == [5.5, 5.5]
    # what is in no block can only be 0, and stays so
    fixed = Block(numbers(3, 2), numbers(0, -1), 5.5)
    assert Step(Box(PLACES, numbers(9, 9, 0)), fixed).draw(heard, numbers(3, 4, 5)).tolist() == [8, 0]


@pytest.mark.parametrize("kind", list(LossKind))
def test_choices_are_drawn_at_the_scale_that_they_state(kind):
    heard = Heard()
    Ranks(PLACES, numbers(9, 4), numbers(1, 0), numbers(1, 0), np.array([2.5, 7.0]), kind).draw(
        heard, numbers(3, 4, 5)
    )
    assert heard.scales == [2.5, 7.0]
    heard = Heard()
    scores = ClaimedScores(PLACES, np.ones(2), np.array([0.5, 3.0]), kind, "a theorem")
    chosen = metered(heard, kind).select_claimed(
        scores, numbers(4, 1, 0, 2), np.ones(4, dtype=np.int64), numbers(0, 2, 4)
    )
    assert heard.scales == [0.5, 3.0]
    assert 0 <= chosen[0] < 2 <= chosen[1] < 4


@pytest.mark.parametrize("seed", range(20))
def test_every_number_of_a_lattice_has_the_cost_of_the_ranks_that_it_misses(seed):
    random = np.random.default_rng(seed)
    # some coordinates may have no entry
    at, high = np.sort(random.integers(0, 4, 9)), random.integers(0, 6, 4)
    value = random.integers(-1, 7, 9)
    rank, above = random.integers(0, 3, 4), random.integers(0, 3, 4)
    ranks = Ranks(EntryIndex(np.arange(9), at, 9, 4), high, rank, above, np.ones(4), LossKind.PURE)
    begin, cost, weight, start = ranks.cells(value)
    for place in range(4):
        own, cells = np.clip(value[at == place], 0, high[place]), slice(start[place], start[place + 1])
        told = np.repeat(cost[cells], weight[cells])
        number = np.arange(high[place] + 1)[:, None]
        below, upto = (own < number).sum(axis=1), (own <= number).sum(axis=1)
        assert told.tolist() == np.maximum(np.maximum(below - rank[place], above[place] - upto), 0).tolist()
        assert begin[cells][weight[cells] > 0].tolist() == sorted(set(begin[cells][weight[cells] > 0]))


def test_noise_of_floats_comes_from_the_sampler_that_is_priced():
    noise = ClaimedNoise(
        PLACES, np.ones(3), LossKind.PURE, "a theorem", lambda size, below: np.full(size, 0.25)
    )
    measure = metered(Heard(), LossKind.PURE)
    assert noise.draw(3, measure).tolist() == [0.25] * 3
    assert measure.spent.tolist() == noise.loss().tolist()
    assert measure.spent[1] > 2 * PICO


def test_nodes_of_a_stream_are_drawn_at_the_scales_of_the_bank():
    heard, bank = Heard(), SignedCounterBank(2, 2, 3, 2, np.array([[4.0, 90.0], [5.0, 80.0]]))
    of = Moments(EntryIndex(numbers(0, 0), numbers(0, 1), 1, 2), numbers(5, 5), 6, np.array([True, True]))
    bank.append(numbers(0, 1), of, np.array([[10, 30], [20, 0]]), numbers(0), PureDP(10**15))
    sums = bank.sums(heard)
    # one element a stream: one node each, whose noise stands before its sum with the sign of its digit
    assert heard.scales == [4.0, 90.0, 5.0, 80.0]
    assert sums.tolist() == [[11, 21], [31, 1]]
