"""The test of drawn noise: silent on noise that is right, and as strong as it says on noise that is not."""

import numpy as np
import pytest
from scipy import stats

from trafficdp.measurement.laws import Block, EntryIndex, Gaussian, Laplace
from trafficdp.measurement.sets import Ranks
from trafficdp.mechanisms.protocol import ClaimedScores
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.release.curator import Recorded
from trafficdp.release.verification import (
    FALSE_ALARM,
    Replayed,
    detection_probability,
    drawn_coordinates,
    plausible,
    probability_text,
    uniform_detection_probability,
)


def numbers(values):
    return np.array(values, dtype=np.int64)


def laws(many):
    """One law of every kind, with scales from small to large, some of them 0 or without block."""
    scale = np.resize([0.0, 0.6, 5.0, 80.0, 4e6], many)
    block = np.repeat(np.arange(many // 4), 4)
    width = np.resize([1, 900, 40, 7], many // 4 * 4)
    some = np.arange(len(block)) == len(block) - 1
    return {
        "laplace": Laplace(scale),
        "gaussian": Gaussian(scale),
        "block": Block(numbers(width), numbers(np.where(some, -1, block)), 3.0),
        "wide block": Block(numbers(width), numbers(block), 5e4),
    }


def drawn(law, source):
    size = (
        len(law.block) if isinstance(law, Block) else len(law.scale if isinstance(law, Laplace) else law.sd)
    )
    return law.add(np.zeros(size, dtype=np.int64), source)


def test_noise_of_its_law_is_plausible_together_and_law_by_law():
    source = SecureNoise()
    noise = [(law, drawn(law, source)) for law in laws(400).values()]
    assert plausible(noise)
    assert all(plausible([each]) for each in noise)
    assert [drawn_coordinates(law)[1] for law, _ in noise] == [320, 320, 100, 100]
    assert plausible([])


@pytest.mark.slow
def test_the_false_alarm_is_what_is_promised_because_ranks_are_uniform():
    """Means and variances of -log(rank) from draws, within 7 standard errors of Gamma(1, 1)."""
    assert FALSE_ALARM < 1e-9
    from trafficdp.noise.choice import block_rank, gaussian_rank, laplace_rank

    source, random = SecureNoise(), np.random.default_rng(5)
    for name, law in laws(8_000).items():
        varies, draws = drawn_coordinates(law)
        z, within = drawn(law, source)[varies], random.random(draws)
        if isinstance(law, Block):
            ranks = block_rank(z, law.half_width[varies], law.block[varies], law.scale, within)
        elif isinstance(law, Gaussian):
            ranks = gaussian_rank(z, law.sd[varies], within)
        else:
            ranks = laplace_rank(z, law.scale[varies], within)
        for side in ranks:
            assert abs((-side).mean() - 1) < 7 / draws**0.5, name
            assert stats.kstest(np.exp(side), "uniform").pvalue > 1e-9, name


@pytest.mark.slow
@pytest.mark.parametrize("name", laws(4))
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_half_the_noise_and_twice_the_noise_are_found(name, factor):
    right = laws(2000)[name]
    if isinstance(right, Block):
        wrong = Block(right.half_width, right.block, right.scale * factor)
    else:
        # draws of less than one step hardly change
        kept = right.scale if isinstance(right, Laplace) else right.sd
        right, wrong = (
            type(right)(np.where(kept < 1, 9.0, kept)),
            type(right)(np.where(kept < 1, 9.0, kept) * factor),
        )
    assert not plausible([(right, drawn(wrong, SecureNoise()))])


def test_sums_that_are_moved_are_found_by_the_signs():
    law = Laplace(np.full(1000, 1e6))
    z = drawn(law, SecureNoise())
    assert plausible([(law, z)])
    assert not plausible([(law, z + 500_000)])
    assert not plausible([(law, z - 500_000)])


def test_noise_where_nothing_varies_is_found():
    law = Gaussian(np.array([0.0, 9.0]))
    assert plausible([(law, numbers([0, 3]))])
    assert not plausible([(law, numbers([1, 3]))])
    assert not plausible([(Block(numbers([1]), numbers([-1]), 1.0), numbers([1]))])


def test_no_noise_at_all_is_found_in_a_dozen_numbers():
    law = Laplace(np.full(12, 1e6))
    assert not plausible([(law, numbers([0] * 12))])


@pytest.mark.parametrize(
    ("factor", "half", "nearly_always"), [(0.5, 109, 180), (0.9, 3902, 7083), (2.0, 69, 146)]
)
def test_the_power_is_what_is_said(pages, factor, half, nearly_always):
    if factor == 0.5:
        assert f"| noise half as large | {half} numbers | {nearly_always} |" in pages.guide("store")
    if factor == 2.0:
        assert f"| a choice at twice its scale | {half} choices | {nearly_always} |" in pages.guide("store")
    assert detection_probability(half, factor) >= 0.5 > detection_probability(half - 1, factor)
    assert (
        detection_probability(nearly_always, factor)
        >= 0.99
        > detection_probability(nearly_always - 1, factor)
    )
    assert detection_probability(0, factor) == 0
    assert [probability_text(each) for each in (0.999, 0.5, 0.0)] == ["0.99", "0.50", "0.00"]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [50, pytest.param(200, marks=pytest.mark.prove)])
@pytest.mark.parametrize("name", ["laplace", "gaussian", "block"])
def test_the_power_is_not_less_than_is_said(name, runs):
    """Of halved releases of 140 draws at least as many are found as is said, within 6 deviations."""
    law, wrong = {
        "laplace": (Laplace(np.full(140, 8e4)), Laplace(np.full(140, 4e4))),
        "gaussian": (Gaussian(np.full(140, 8e4)), Gaussian(np.full(140, 4e4))),
        "block": (
            Block(numbers([3] * 420), numbers(np.repeat(np.arange(140), 3)), 8e3),
            Block(numbers([3] * 420), numbers(np.repeat(np.arange(140), 3)), 4e3),
        ),
    }[name]
    said = detection_probability(140, 0.5)
    found = sum(not plausible([(law, drawn(wrong, SecureNoise()))]) for _ in range(runs))
    assert found >= runs * said - 6 * (runs * said * (1 - said)) ** 0.5


VEHICLES, HIGH, SCALE = 150, 20_000, 8.0


class Wrong(SimulatedNoise):
    """Choices at ``factor`` times their scale."""

    def __init__(self, seed, factor):
        super().__init__(seed)
        self._factor = factor

    def choose(self, cost, weight, start, scale, runs=1):
        return super().choose(cost, weight, start, scale * self._factor, runs)


def chosen(many, source):
    """Medians of ``many`` bins whose vehicles' numbers lie close, as a replay knows them."""
    values = np.random.default_rng(3).integers(0, HIGH + 1, many * VEHICLES)
    support = EntryIndex(
        np.tile(np.arange(VEHICLES), many), np.repeat(np.arange(many), VEHICLES), VEHICLES, many
    )
    half, high = np.full(many, VEHICLES // 2), np.full(many, HIGH)
    ranks = Ranks(support, high, half, half, np.full(many, SCALE), LossKind.PURE)
    recorded = Recorded(source)
    recorded.select(ranks, values)
    again = Replayed(recorded.to_bytes())
    again.select(ranks, values)
    return again.chosen


def test_choices_of_their_law_are_plausible_alone_and_beside_noise():
    (right,) = chosen(400, SimulatedNoise(1))
    assert plausible([], [right])
    law = Laplace(np.full(400, 9.0))
    assert plausible([(law, drawn(law, SecureNoise()))], [right])
    assert not plausible([(law, 3 * drawn(law, SecureNoise()))], [right])


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_choices_at_half_and_at_twice_their_scale_are_found(factor):
    # a halved scale is twice the epsilon; right ones are told apart at 5 in 10^10
    assert not plausible([], chosen(400, Wrong(2, factor)))
    law = Laplace(np.full(400, 9.0))
    assert not plausible([(law, drawn(law, SecureNoise()))], chosen(400, Wrong(2, factor)))


@pytest.mark.slow
def test_ranks_of_choices_are_uniform_so_that_the_false_alarm_is_what_is_promised():
    from trafficdp.noise.choice import choice_rank

    (each,) = chosen(4000, SimulatedNoise(4))
    within = each.low + each.span * np.random.default_rng(6).random(4000)
    for side in choice_rank((each.cost, each.weight, each.start, each.scale), each.cell, within):
        assert abs((-side).mean() - 1) < 7 / 4000**0.5
        assert stats.kstest(np.exp(side), "uniform").pvalue > 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_power_of_choices_among_close_numbers_is_about_what_is_said(factor):
    """Of 100 releases of 110 choices, within 6 deviations and 0.1 of what is said for exponential costs."""
    said = detection_probability(110, factor)
    found = sum(not plausible([], chosen(110, Wrong(seed, factor))) for seed in range(100)) / 100
    assert abs(found - said) < 6 * (said * (1 - said) / 100) ** 0.5 + 0.1


def test_choices_without_a_scale_are_those_of_least_cost():
    support = EntryIndex(numbers([0, 1]), numbers([0, 0]), 2, 1)
    for scale, answer, right in ((0.0, 1, True), (0.0, 2, False), (1.0, 2, True)):
        recorded = Recorded(SimulatedNoise(1))
        recorded._kept(numbers([answer]))
        again = Replayed(recorded.to_bytes())
        scores = ClaimedScores(support, np.ones(1), np.array([scale]), LossKind.PURE, "a theorem")
        again.select_claimed(scores, numbers([4, 0, 5]), numbers([1, 1, 1]), numbers([0, 3]))
        assert plausible([], again.chosen) is right


def uniform(below, number):
    return [(numbers(below), numbers(number))]


@pytest.mark.parametrize("below", [2, 1000, 2**53])
def test_uniform_numbers_are_plausible_and_a_half_of_them_is_not(below):
    range_ = np.full(300, below)
    right = SecureNoise().uniform_below(range_)
    assert plausible([], [], uniform(range_, right))
    half = SecureNoise().uniform_below(range_ // 2)
    assert not plausible([], [], uniform(range_, half))
    assert not plausible([], [], uniform(range_, below - 1 - half))
    law = Laplace(np.full(300, 9.0))
    assert not plausible([(law, drawn(law, SecureNoise()))], [], uniform(range_, half))


def test_uniform_numbers_out_of_range_are_found_and_the_ends_are_not():
    assert plausible([], [], uniform([9, 9, 1], [0, 8, 0]))
    # both happen, once in 10^15
    assert not plausible([], [], uniform([2**53], [0]))
    assert not plausible([], [], uniform([2**53], [2**53 - 1]))
    assert not plausible([], [], uniform([9], [9]))
    assert not plausible([], [], uniform([9], [-1]))


def test_the_power_of_uniform_numbers_is_what_is_said(pages):
    half, nearly_always = 126, 196
    assert f"range only | {half} numbers | {nearly_always} |" in pages.guide("store")
    assert uniform_detection_probability(half) >= 0.5 > uniform_detection_probability(half - 1)
    assert (
        uniform_detection_probability(nearly_always)
        >= 0.99
        > uniform_detection_probability(nearly_always - 1)
    )
    assert uniform_detection_probability(0) == 0 < uniform_detection_probability(9) < 1e-6
    said, range_ = uniform_detection_probability(140), np.full(140, 2**53)
    found = sum(
        not plausible([], [], uniform(range_, SecureNoise().uniform_below(range_ // 2))) for _ in range(200)
    )
    assert found >= 200 * said - 6 * (200 * said * (1 - said)) ** 0.5
