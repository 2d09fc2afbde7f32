"""What was measured is kept, and gives the noise back beside the exact sums."""

import io

import numpy as np
import pytest

from trafficdp.errors import VerificationError
from trafficdp.measurement.laws import EntryIndex, Laplace
from trafficdp.measurement.sets import Box, Ranks, Step
from trafficdp.mechanisms.protocol import ClaimedNoise, ClaimedScores
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.release.curator import Recorded
from trafficdp.release.verification import Replayed


def numbers(*values):
    return np.array(values, dtype=np.int64)


SUPPORT = EntryIndex(numbers(0, 1), numbers(0, 0), 2, 1)
STEP = Step(Box(SUPPORT, numbers(9, 9)), Laplace(np.array([4.0])))
VALUES = numbers(7, 50)


def asked(measure):
    """Every verb, in turn."""
    one = np.ones(1)
    ranks = Ranks(SUPPORT, numbers(20), numbers(1), numbers(1), one, LossKind.PURE)
    scores = ClaimedScores(SUPPORT, one, one, LossKind.PURE, "a theorem")
    noise = ClaimedNoise(
        SUPPORT, np.ones(2), LossKind.PURE, "a theorem", lambda size, below: below(np.full(size, 9)) / 7
    )
    return [
        measure.measure(STEP, VALUES).tolist(),
        measure.select(ranks, VALUES).tolist(),
        measure.select_claimed(scores, numbers(0, 1, 2), numbers(1, 1, 1), numbers(0, 3)).tolist(),
        noise.draw(3, measure).tolist(),
        measure.uniform_below(np.full((2, 2), 1000)).tolist(),
        measure.measure(STEP, VALUES).tolist(),
    ]


def test_every_answer_is_given_again_and_the_noise_is_what_lies_above_the_exact_sum():
    recorded = Recorded(SimulatedNoise(3))
    first = asked(recorded)
    again = Replayed(recorded.to_bytes())
    assert again.left
    assert asked(again) == first
    assert not again.left
    # of claimed noise, and by itself
    below, number = zip(*again.uniform, strict=True)
    assert [each.tolist() for each in below] == [[9] * 3, [1000] * 4]
    assert (number[0] / 7).tolist() == first[3]
    assert number[1].tolist() == [each for row in first[4] for each in row]
    # 7, and 50 clipped to 9
    assert [(law, z.tolist()) for law, z in again.noise] == [
        (STEP.law, [first[0][0] - 16]),
        (STEP.law, [first[5][0] - 16]),
    ]


def test_what_was_chosen_is_found_among_what_there_was():
    recorded = Recorded(SimulatedNoise(3))
    first = asked(recorded)
    again = Replayed(recorded.to_bytes())
    asked(again)
    ranked, claimed = again.chosen
    # vehicles at 7 and, clipped, at 20: cells 0..6, 7, 8..19 and 20, the empty one behind it
    assert ranked.weight.tolist() == [7, 1, 12, 1, 0]
    begin = np.array([0, 7, 8, 20, 21])
    number = first[1][0]
    assert begin[ranked.cell[0]] + round(ranked.low[0] / ranked.span[0]) == number
    assert ranked.span[0] == 1 / ranked.weight[ranked.cell[0]]
    assert claimed.cell.tolist() == first[2]
    assert (claimed.low[0], claimed.span[0]) == (0.0, 1.0)


@pytest.mark.parametrize("answer", [-1, 21])
def test_what_cannot_be_chosen_was_not(answer):
    ranks = Ranks(SUPPORT, numbers(20), numbers(1), numbers(1), np.ones(1), LossKind.PURE)
    scores = ClaimedScores(SUPPORT, np.ones(1), np.ones(1), LossKind.PURE, "a theorem")
    recorded = Recorded(SimulatedNoise(3))
    recorded._kept(numbers(answer))
    with pytest.raises(VerificationError, match="no vehicle can have"):
        Replayed(recorded.to_bytes()).select(ranks, VALUES)
    with pytest.raises(VerificationError, match="that there was not"):
        Replayed(recorded.to_bytes()).select_claimed(
            scores, numbers(0, 1, 2), numbers(1, 1, 1), numbers(0, 3)
        )


def test_what_is_kept_is_what_was_drawn_whatever_is_made_of_it():
    recorded = Recorded(SimulatedNoise(3))
    answer = recorded.measure(STEP, VALUES)
    drawn = answer.tolist()
    answer[:] = 0
    assert Replayed(recorded.to_bytes()).measure(STEP, VALUES).tolist() == drawn


def test_what_was_not_kept_cannot_be_asked_for():
    recorded = Recorded(SimulatedNoise(3))
    recorded.uniform_below(numbers(5, 5))
    with pytest.raises(VerificationError, match="something else was measured"):
        Replayed(recorded.to_bytes()).measure(STEP, VALUES)
    again = Replayed(recorded.to_bytes())
    again.uniform_below(numbers(5, 5))
    with pytest.raises(VerificationError, match="something else was measured"):
        again.uniform_below(numbers(5, 5))


def test_what_was_kept_is_numbers_and_nothing_that_is_executed():
    sink = io.BytesIO()
    np.savez(sink, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        Replayed(sink.getvalue())
