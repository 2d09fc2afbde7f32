"""Exponential withhold-release: the golden order, any batches, at least half of the samples released."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.research.george_2022.arrivals import WithholdRelease, level_size


def literal(order, values):
    """(position, user, level, sum) of every element, one sample at a time."""
    samples, found = {}, []
    for t, (user, x) in enumerate(zip(order, values, strict=True)):
        own = samples.setdefault(user, [])
        own.append(x)
        count = len(own)
        if count & (count - 1) == 0:
            level = count.bit_length() - 1
            found.append((t, user, level, sum(own[-max(1, count // 2) :])))
    return found


def listed(elements, offset=0):
    columns = (elements.sample + offset, elements.pair, elements.level, elements.value)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60), st.data())
@settings(max_examples=examples(150))
def test_elements_are_the_same_however_the_stream_is_cut(stream, data):
    order, values = [u for u, _ in stream], [x for _, x in stream]
    state, found, at = WithholdRelease(4), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        part = slice(at, at + size)
        found += listed(state.append(np.array(order[part]), np.array(values[part])), at)
        at += size
    assert found == literal(order, values)
    released = sum(int(level_size(np.array(level))) for _, _, level, _ in found)
    assert 2 * released >= len(stream)
    assert state.withheld.sum() == sum(values) - sum(each[3] for each in found)


def test_columns_are_withheld_together():
    values = np.array([[3, 9], [4, 16], [5, 25], [6, 36]])
    found = WithholdRelease(1, columns=2).append(np.zeros(4, dtype=int), values)
    assert found.value.tolist() == [[3, 9], [4, 16], [11, 61]]
    assert len(found) == 3


@pytest.mark.parametrize(("pair", "value"), [([2], [1]), ([-1], [1]), ([0], [[1, 2]])])
def test_what_does_not_fit_is_refused(pair, value):
    with pytest.raises(UsageError):
        WithholdRelease(2).append(np.array(pair), np.array(value))


def test_sizes_of_levels():
    assert level_size(np.arange(6)).tolist() == [1, 1, 2, 4, 8, 16]
