"""The bank of running sums: the binary mechanism's nodes, noise drawn once, exact prices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.errors import UsageError
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.stream.counter import CounterBank, bit_length, nodes_touched


class Numbered:
    """Noise 10^6, 2 * 10^6, ...: every draw can be told from every other."""

    def __init__(self):
        self.drawn = 0

    def discrete_laplace(self, scale):
        self.drawn += len(scale)
        return (np.arange(self.drawn - len(scale), self.drawn) + 1) * 10**6


def literal_nodes(values):
    """Algorithm 1 word for word: the live nodes after the last element, by height."""
    alpha = {}
    for t, x in enumerate(values, start=1):
        i = (t & -t).bit_length() - 1
        alpha[i] = sum(alpha.pop(j) for j in range(i)) + x
    return alpha


def test_bit_lengths_are_the_golden_ones():
    assert bit_length(np.array([1, 7, 8, 1000, 1024])).tolist() == [1, 3, 4, 10, 11]
    assert bit_length(0) == 0
    assert bit_length(2**40) == 41


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.data())
@settings(max_examples=150)
def test_nodes_are_those_of_algorithm_1_however_the_stream_is_cut(values, data):
    bank = CounterBank(1, 1, 6, np.array(3.0))
    at = 0
    while at < len(values):
        size = data.draw(st.integers(1, len(values) - at))
        part = np.array(values[at : at + size])
        bank.append(np.zeros(size, dtype=int), np.zeros(size, dtype=int), part)
        at += size
        expected = literal_nodes(values[:at])
        assert {j: int(s) for j, s in enumerate(bank.node[0]) if (at >> j) & 1} == expected
        if data.draw(st.booleans()):
            bank.draw(SimulatedNoise(1))
    bank.noise[:] = 0
    bank.draw(SimulatedNoise(1))
    bank.noise[:] = 0
    assert bank.sums()[0, 0] == sum(values)


def test_streams_of_one_batch_do_not_mix():
    random = np.random.default_rng(4)
    bank = CounterBank(5, 3, 12, np.array(1.0))
    bins, level = random.integers(0, 5, 900), random.integers(0, 3, 900)
    value = random.integers(0, 100, 900)
    for part in np.array_split(np.arange(900), 17):
        touched = bank.append(bins[part], level[part], value[part])
        assert set(touched) == set(bins[part] * 3 + level[part])
    bank.draw(SimulatedNoise(1))
    bank.noise[:] = 0
    expected = np.zeros((5, 3), dtype=int)
    np.add.at(expected, (bins, level), value)
    np.testing.assert_array_equal(bank.sums(), expected)
    counts = np.zeros((5, 3), dtype=int)
    np.add.at(counts, (bins, level), 1)
    np.testing.assert_array_equal(bank.counts(), counts)


def test_a_node_is_given_noise_once_and_keeps_it_as_long_as_it_is_published():
    noise = Numbered()
    bank = CounterBank(1, 1, 8, np.array(5.0))
    published = {}
    for t in range(1, 200):
        bank.append(np.array([0]), np.array([0]), np.array([1]))
        bank.draw(noise)
        for j in range(8):
            if (t >> j) & 1:
                block = (j, t >> j)
                assert published.setdefault(block, bank.noise[0, j]) == bank.noise[0, j]
    # one draw for every node, none twice
    assert noise.drawn == len(published) == len(set(published.values())) == 199
    before = bank.state()
    assert bank.draw(noise).size == 0
    assert all((before[name] == bank.state()[name]).all() for name in before)


def test_noise_that_is_not_published_is_not_drawn():
    noise = Numbered()
    bank = CounterBank(1, 1, 20, np.array(5.0))
    bank.append(*(np.zeros(1000, dtype=int),) * 2, np.ones(1000, dtype=int))
    bank.draw(noise)
    assert noise.drawn == int(bank.terms()[0, 0]) == (1000).bit_count()


@pytest.mark.parametrize("heights", [1, 2, 3, 4, 5])
def test_the_price_of_an_element_is_the_number_of_nodes_that_ever_hold_it(heights):
    length = 2**heights - 1
    for position in range(1, length + 1):
        bank = CounterBank(1, 1, heights, np.array(1.0))
        seen = set()
        for t in range(1, length + 1):
            bank.append(np.array([0]), np.array([0]), np.array([int(t == position)]))
            seen |= {(j, t >> j) for j in range(heights) if bank.node[0, j]}
        assert len(seen) == nodes_touched(np.array(position), heights) <= heights
    assert nodes_touched(np.array([1]), heights) == heights


def test_positions_are_those_that_the_elements_then_take():
    bank = CounterBank(2, 2, 5, np.array(1.0))
    bank.append(np.array([0, 0]), np.array([1, 1]), np.array([4, 4]))
    bins, level = np.array([0, 1, 0, 0]), np.array([1, 0, 0, 1])
    assert bank.positions(bins, level).tolist() == [3, 1, 1, 4]


def test_a_full_stream_takes_no_more_and_is_left_as_it_was():
    bank = CounterBank(1, 2, 2, np.array(1.0))
    bank.append(np.zeros(3, dtype=int), np.zeros(3, dtype=int), np.array([1, 2, 3]))
    before = bank.state()
    assert bank.room().tolist() == [[0, 3]]
    with pytest.raises(UsageError, match="stream is full"):
        bank.append(np.array([0, 0]), np.array([1, 0]), np.array([1, 1]))
    assert all((before[name] == bank.state()[name]).all() for name in before)


def test_a_bank_comes_back_from_its_arrays_and_can_grow():
    bank = CounterBank(2, 1, 6, np.array([[2.0], [7.0]]))
    bank.append(np.array([0, 1, 1]), np.zeros(3, dtype=int), np.array([5, 6, 7]))
    bank.draw(SimulatedNoise(3))
    again = CounterBank.from_state(bank.state())
    np.testing.assert_array_equal(again.sums(), bank.sums())
    again.grow(3, np.array(4.0))
    assert again.sums().tolist() == [*bank.sums().tolist(), [0]]
    assert again.scale.tolist() == [2.0, 7.0, 4.0]
    again.append(np.array([2]), np.array([0]), np.array([9]))
    with pytest.raises(UsageError, match="no noise yet"):
        again.sums()


def test_a_release_draws_exact_noise():
    bank = CounterBank(3, 2, 4, np.array(10.0))
    bank.append(np.array([0, 1, 2]), np.array([0, 1, 1]), np.array([5, 6, 7]))
    assert bank.draw(SecureNoise()).tolist() == [0, 3, 5]
    assert bank.sums().shape == (3, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CounterBank(1, 1, 4, np.array(0.0)),
        lambda: CounterBank(1, 1, 4, np.array(np.inf)),
        lambda: CounterBank(1, 1, 99, np.array(1.0)),
        lambda: CounterBank(1, 1, 4, np.array(1.0)).append(np.array([1]), np.array([0]), np.array([1])),
        lambda: CounterBank(1, 1, 4, np.array(1.0)).append(np.array([0]), np.array([-1]), np.array([1])),
        lambda: CounterBank.from_state({**CounterBank(2, 2, 4, np.array(1.0)).state(), "count": np.zeros(3)}),
    ],
)
def test_what_does_not_fit_is_refused(make):
    with pytest.raises(UsageError):
        make()


def test_nothing_appended_changes_nothing():
    bank = CounterBank(1, 1, 4, np.array(1.0))
    assert bank.append(*(np.zeros(0, dtype=int),) * 3).size == 0
    assert bank.sums().tolist() == [[0]]
