"""The exponential mechanism over finite candidates: golden laws, exactness, OpenDP as a witness."""

import numpy as np
import opendp.prelude as opendp
import pytest
from scipy import stats

from trafficdp.errors import UsageError
from trafficdp.noise import choice
from trafficdp.noise.source import SecureNoise, SimulatedNoise

COST = np.array([5, 3, 2, 4, 5, 5, 5])
GOLDEN = np.array([0.110500, 0.182184, 0.233929, 0.141885, 0.110500, 0.110500, 0.110500])
RAGGED = (
    np.array([5, 3, 2, 4, 5, 5, 5, 0, 7, 0, 1]),
    np.array([1, 1, 1, 1, 1, 1, 1, 3, 2, 0, 1]),
    np.array([0, 7, 8, 11]),
    np.array([4.0, 1.0, 2.5]),
)


def expected():
    tail = np.array([2 * np.exp(-7 / 2.5), 0.0, np.exp(-1 / 2.5)])
    return np.concatenate([np.exp(-COST / 4) / np.exp(-COST / 4).sum(), [1.0], tail / tail.sum()])


def test_the_law_is_the_golden_one():
    found = choice.probabilities(COST, np.ones_like(COST), np.array([0, 7]), np.array([4.0]))
    np.testing.assert_allclose(found, GOLDEN, atol=5e-7)
    np.testing.assert_allclose(choice.probabilities(*RAGGED), expected(), rtol=1e-14)


@pytest.mark.parametrize("noise", [SecureNoise(), SimulatedNoise(3)])
def test_draws_follow_the_law(noise):
    runs = 100_000
    drawn = noise.choose(*RAGGED, runs=runs)
    assert drawn.shape == (runs, 3)
    counted = np.bincount(drawn.ravel(), minlength=11) / runs
    law = expected()
    assert counted[9] == 0
    assert counted[7] == 1
    possible = law > 0
    for part in (slice(0, 7), slice(8, 11)):
        keep = possible[part]
        test = stats.chisquare(counted[part][keep] * runs, law[part][keep] * runs)
        assert test.pvalue > 1e-9


@pytest.mark.slow
def test_draws_that_floats_cannot_decide_are_decided_by_the_same_law(monkeypatch):
    # with a margin of everything, every draw goes the decimal way
    monkeypatch.setattr(choice, "_margin", lambda sizes: np.full(len(sizes), 2**62))
    asked = []

    def bits(size):
        asked.append(size)
        return source.bits(size)

    source = SimulatedNoise(5)
    slow = choice.draw(*RAGGED, 2_000, bits, exact=True)
    monkeypatch.undo()
    source = SimulatedNoise(5)
    fast = choice.draw(*RAGGED, 2_000, bits, exact=False)
    np.testing.assert_array_equal(slow, fast)


@pytest.mark.parametrize(("more", "expected_index"), [(0, 0), (2**62 - 1, 1)])
def test_a_draw_between_two_candidates_asks_for_more_bits(more, expected_index):
    # F_1 = 1/(1 + e^-1): its first 62 bits are exactly the word, so that only later bits can tell
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 60
        word = int(1 / (1 + Decimal(-1).exp()) * 2**62)
    asked = []

    def bits(size):
        asked.append(size)
        return np.array([more] * size)

    assert choice.exact_candidate(np.array([0, 1]), np.array([1, 1]), 1.0, word, bits) == expected_index
    assert asked == [1]


def test_the_integer_sums_are_within_their_margin_of_exact_sums():
    from decimal import Decimal, localcontext

    random = np.random.default_rng(7)
    size = 400
    cost = random.integers(0, 3_000, size)
    weight = random.integers(0, 10**12, size) * random.integers(0, 2, size)
    start = np.array([0, 150, size])
    for scale in (0.7, 3.3, 1e3, 1e9):
        scales = np.full(2, scale)
        ends = choice._running_sums(choice._excess(cost, weight, start), weight, start, scales)
        with localcontext() as context:
            context.prec = 60
            for low, high in ((0, 150), (150, size)):
                terms = [
                    Decimal(int(w)) * (-Decimal(int(c)) / Decimal(scale)).exp()
                    for c, w in zip(cost[low:high], weight[low:high], strict=True)
                ]
                running, total = Decimal(0), sum(terms)
                for end, term in zip(ends[low:high], terms, strict=True):
                    running += term
                    error = abs(running / total * 2**62 - int(end))
                    assert error <= int(choice._margin(np.array([high - low]))[0])


def test_weight_zero_is_never_drawn_even_by_the_extreme_words():
    cost, weight = np.array([0, 9, 0, 9, 0]), np.array([0, 1, 0, 1, 0])
    for word in (0, 2**62 - 1):
        for exact in (False, True):

            def bits(size, word=word):
                return np.full(size, word)

            drawn = choice.draw(cost, weight, np.array([0, 5]), np.array([1.0]), 3, bits, exact=exact)
            assert set(drawn.ravel()) <= {1, 3}


def test_no_noise_takes_the_first_of_least_cost():
    cost = np.array([3, 1, 0, 1, 2, 2])
    weight = np.array([1, 1, 0, 9, 1, 5])
    drawn = SecureNoise().choose(cost, weight, np.array([0, 4, 6]), np.zeros(2), runs=50)
    assert np.all(drawn == [1, 4])


def test_tiny_scales_do_not_overflow():
    cost = np.array([2**60, 0, 2**61])
    drawn = SecureNoise().choose(cost, np.ones(3, dtype=np.int64), np.array([0, 3]), np.array([5e-324]))
    assert drawn.tolist() == [[1]]


@pytest.mark.slow
def test_opendps_zero_concentrated_noisy_max_has_this_law_and_the_pure_one_has_not():
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.linf_distance(T="i64")
    opendp.enable_features("contrib")
    # the pure one, 0.1 away, has p < 1e-26 with three thousand
    runs = 3_000

    def share(measure):
        sampler = opendp.m.make_noisy_max(*space, measure, scale=1.0, negate=True)
        return np.bincount([sampler([0, 2, 1]) for _ in range(runs)], minlength=3)

    law = choice.probabilities(
        np.array([0, 2, 1]), np.ones(3, dtype=np.int64), np.array([0, 3]), np.array([1.0])
    )
    assert stats.chisquare(share(opendp.zero_concentrated_divergence()), law * runs).pvalue > 1e-9
    assert stats.chisquare(share(opendp.max_divergence()), law * runs).pvalue < 1e-9
    # both promise 2 c / scale
    assert opendp.m.make_noisy_max(*space, opendp.max_divergence(), scale=4.0).map(1) == 0.5


@pytest.mark.parametrize("noise", [SecureNoise(), SimulatedNoise(4)])
def test_uniform_integers_are_uniform(noise):
    for count in (1, 3, 7):
        drawn = noise.uniform_below(np.full((100, 300), count))
        assert drawn.shape == (100, 300)
        seen = np.bincount(drawn.ravel(), minlength=count)
        assert len(seen) == count
        assert count == 1 or stats.chisquare(seen).pvalue > 1e-9
    large = noise.uniform_below(np.full(1_000, 2**61))
    assert large.min() >= 0
    assert large.max() < 2**61


def test_words_beyond_the_last_whole_multiple_are_drawn_again(monkeypatch):
    words = iter([np.array([2**62 - 1]), np.array([5])])
    monkeypatch.setattr("trafficdp.noise.source.bits", lambda size: next(words))
    # 2^62 - 1 is a multiple of 3: the last word would favour 0
    assert SecureNoise().uniform_below(np.array([3])).tolist() == [2]


@pytest.mark.parametrize("count", [0, -1, 2**61 + 1])
def test_ranges_that_cannot_be_drawn_from_are_refused(count):
    with pytest.raises(UsageError, match="range to draw from"):
        SecureNoise().uniform_below(np.array([count]))


def test_choices_without_candidates_or_with_wrong_scales_are_refused():
    bits = SimulatedNoise(1).bits
    one, start = np.array([1]), np.array([0, 1])
    with pytest.raises(UsageError, match="nothing to choose from"):
        choice.draw(one, np.array([0]), start, np.array([1.0]), 1, bits, exact=True)
    with pytest.raises(UsageError, match="nothing to choose from"):
        choice.draw(one, one, np.array([0, 0, 1]), np.array([1.0, 1.0]), 1, bits, exact=True)
    for scale in (-1.0, np.inf, np.nan):
        with pytest.raises(UsageError, match="scale of a choice"):
            choice.draw(one, one, start, np.array([scale]), 1, bits, exact=True)
    assert choice.draw(one[:0], one[:0], start[:1], np.zeros(0), 4, bits, exact=True).shape == (4, 0)


def test_the_same_seed_draws_the_same():
    first, second = (SimulatedNoise(9).choose(*RAGGED, runs=50) for _ in range(2))
    np.testing.assert_array_equal(first, second)
