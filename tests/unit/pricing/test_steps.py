"""Both prices of a step, the waist's in floats and this room's in fractions, agree to the last unit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import AllocationError, UsageError
from trafficdp.measurement.laws import GRAINS, Block, EntryIndex, Gaussian, Laplace
from trafficdp.measurement.sets import AddRemoveBall, Ball, Box, Moments, Ranks, Step
from trafficdp.mechanisms.protocol import ClaimedNoise, ClaimedScores, ClaimedSums
from trafficdp.pricing import check_steps
from trafficdp.privacy.loss import LossKind

numbers = st.integers(0, 10**4)


@st.composite
def supports(draw):
    users, coordinates = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    table = draw(st.lists(st.booleans(), min_size=users * coordinates, max_size=users * coordinates))
    coordinate, user = np.nonzero(np.array(table).reshape(coordinates, users))
    return EntryIndex(user.astype(np.int64), coordinate.astype(np.int64), users, coordinates)


def array(draw, element, size, kind=np.int64):
    return np.array(draw(st.lists(element, min_size=size, max_size=size)), dtype=kind)


scales = st.floats(8.0, 1e7)


def blocks(draw, size):
    raw = array(draw, st.integers(0, 2), size)
    return np.unique(raw, return_inverse=True)[1].astype(np.int64)


@st.composite
def steps(draw):
    of = draw(supports())
    entries, size = len(of.user), of.coordinates
    kind = draw(st.sampled_from(["box", "pairs", "ball", "claimed", "ranks", "scores", "noise"]))
    if kind in ("box", "claimed"):
        high = array(draw, numbers, entries)
        law = draw(
            st.sampled_from(
                [
                    Laplace(array(draw, scales, size, np.float64)),
                    Gaussian(array(draw, scales, size, np.float64)),
                    Block(array(draw, st.integers(1, 10**5), size), blocks(draw, size), draw(scales)),
                ]
            )
        )
        if kind == "claimed":
            return Step(ClaimedSums(of, high, "none"), law)
        return Step(Box(of, high), law, array(draw, st.integers(-4, 6), size))
    if kind == "pairs":
        count, top = array(draw, st.integers(1, 300), entries), draw(st.integers(1, 40))
        second = array(draw, st.booleans(), size, np.bool_)
        pairs = Moments(of, count, top, second)
        shift = np.concatenate([np.zeros(size, dtype=np.int64), array(draw, st.integers(-4, 0), size)])
        if draw(st.booleans()):
            return Step(pairs, Laplace(array(draw, scales, 2 * size, np.float64)), shift)
        one = blocks(draw, size)
        two = np.full(size, -1, dtype=np.int64)
        two[second] = np.unique(one[second], return_inverse=True)[1] + one.max() + 1
        width = array(draw, st.integers(1, 10**5), 2 * size)
        shift = array(draw, st.integers(-4, 6), 2 * size)
        return Step(pairs, Block(width, np.concatenate([one, two]), draw(scales)), shift)
    if kind == "ball":
        norm = draw(st.sampled_from([1, 2]))
        low, high = (array(draw, st.integers(0, GRAINS), entries) for _ in range(2))
        law = (Laplace if norm == 1 else Gaussian)(array(draw, scales, size, np.float64))
        hidden = draw(st.booleans())
        return Step(AddRemoveBall(size, norm, 2.0) if hidden else Ball(of, norm, 2.0, -low, high), law)
    loss_kind = draw(st.sampled_from(list(LossKind)))
    scale = array(draw, scales, size, np.float64)
    if kind == "ranks":
        zeros = np.zeros(size, dtype=np.int64)
        return Ranks(of, zeros + 9, zeros, zeros, scale, loss_kind)
    if kind == "scores":
        return ClaimedScores(of, array(draw, st.integers(0, 9), size, np.float64), scale, loss_kind, "none")
    lost = array(draw, st.floats(0, 9), entries, np.float64)
    return ClaimedNoise(of, lost, loss_kind, "none", lambda size, below: np.zeros(size))


@pytest.mark.slow
@given(steps(), st.integers(0, 3))
@settings(max_examples=examples(150))
def test_both_prices_agree_to_the_last_unit(step, which):
    try:
        loss = step.loss()
    except UsageError:
        # more than one million of epsilon or rho
        reject()
    check_steps([step], loss)
    check_steps([step, step], 2 * loss)
    # the waist rounds every entry up to a whole unit, and its floats by some 2^-50 of them
    of = step.of if isinstance(step, Step) else step
    entries = 1 if isinstance(of, AddRemoveBall) else len(of.support.user)
    least = loss - (entries + 2) - (loss.astype(np.float64) * 2.0**-45).astype(np.int64)
    if isinstance(step, Step) and isinstance(step.of, Moments) and isinstance(step.law, Block):
        # a float that is rounded up may pass a whole unit of 1/s
        least -= entries * int(10**12 / step.law.scale + 1)
    user = which % len(loss)
    if least[user] >= 0 and loss[user] > 0:
        short = loss.copy()
        short[user] = least[user]
        with pytest.raises(AllocationError, match="would lose more"):
            check_steps([step], short)


def test_what_varies_without_noise_is_unsound():
    of = EntryIndex(np.array([0]), np.array([0]), 1, 1)
    enough = np.array([10**18])
    box, zero = Box(of, np.array([3])), np.zeros(1)
    pairs = Moments(of, np.array([3]), 5, np.array([True]))
    bare = [
        Step(box, Laplace(zero)),
        Step(box, Gaussian(zero)),
        Step(box, Block(np.array([1]), np.array([-1]), 1.0)),
        Step(pairs, Laplace(np.array([1.0, 0.0]))),
        Step(pairs, Block(np.array([1, 1]), np.array([0, -1]), 1.0)),
        Ranks(of, np.array([3]), np.array([1]), np.array([1]), zero, LossKind.PURE),
    ]
    for step in bare:
        with pytest.raises(AllocationError):
            check_steps([step], enough)
    good = Step(box, Laplace(np.array([1.0])))
    check_steps([replace(good)], enough)
