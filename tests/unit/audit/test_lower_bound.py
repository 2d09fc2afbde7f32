import numpy as np
import pytest
from scipy import stats

from trafficdp.audit.lower_bound import lower_bound_from_draws, proportion_high, proportion_low
from trafficdp.audit.neighbours import agreeing_neighbours, extreme_neighbours, one_bin
from trafficdp.errors import UsageError
from trafficdp.mechanisms.simulated_cities import repeat_bins


@pytest.mark.parametrize(("hits", "trials"), [(1, 10), (5, 10), (10, 10), (30, 50_000), (49_990, 50_000)])
@pytest.mark.parametrize("error", [0.025, 1e-9])
def test_the_limits_are_those_of_clopper_and_pearson(hits, trials, error):
    assert proportion_low(hits, trials, error) == pytest.approx(
        stats.beta.ppf(error, hits, trials - hits + 1), rel=1e-6
    )
    high = 1.0 if hits == trials else stats.beta.ppf(1 - error, hits + 1, trials - hits)
    assert proportion_high(hits, trials, error) == pytest.approx(high, rel=1e-6)


def test_no_hits_promise_nothing_from_below():
    assert proportion_low(0, 100, 0.01) == 0.0
    assert proportion_high(100, 100, 0.01) == 1.0


def test_equal_laws_are_not_told_apart():
    random = np.random.default_rng(1)
    found, _ = lower_bound_from_draws(random.normal(size=40_000), random.normal(size=40_000), 1e-6)
    assert found == 0.0


@pytest.mark.parametrize("mirror", [1, -1])
@pytest.mark.parametrize("swap", [1, -1])
def test_a_known_loss_is_nearly_found_on_all_sides(mirror, swap):
    random = np.random.default_rng(2)
    sides = [random.laplace(size=100_000) * mirror, (random.laplace(size=100_000) + 1.5) * mirror]
    found, _ = lower_bound_from_draws(*sides[::swap], 1e-6)
    assert 1.2 < found <= 1.5


@pytest.mark.slow
def test_the_bound_holds_at_its_confidence():
    # randomised response with loss ln 3, found at 20 % error: wrong in at most a fifth of the repetitions
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(200):
        left, right = (random.random(600) < p for p in (0.75, 0.25))
        wrong += lower_bound_from_draws(left.astype(float), right.astype(float), 0.2)[0] > np.log(3)
    assert stats.binom.sf(wrong - 1, 200, 0.2) > 1e-9


def test_outputs_that_are_impossible_for_the_other_are_found():
    found, _ = lower_bound_from_draws(np.zeros(20_000), np.ones(20_000), 1e-6)
    assert found > 6


def test_repeated_bins_are_copies(bound_of):
    one = one_bin([[3, 1], [2]], bound_of(9))
    many = repeat_bins(one, 3)
    assert many.value.tolist() == [3, 1, 2] * 3
    assert many.counts.samples_per_bin.tolist() == [3, 3, 3]
    assert many.start.tolist() == [0, 2, 3, 5, 6, 8, 9]


def test_neighbours_differ_in_one_vehicle_only(bound_of):
    pairs = extreme_neighbours(bound_of(9))
    assert len(pairs) >= 6
    for pair in pairs:
        assert pair.left.counts.count.tolist() == pair.right.counts.count.tolist()
        owner = np.repeat(np.arange(pair.left.counts.pairs), pair.left.counts.count)
        assert len(set(owner[pair.left.value != pair.right.value])) == 1
        assert str(9) not in repr(pair.left)


def test_a_confidence_that_is_none_is_refused(bound_of):
    from trafficdp.audit.lower_bound import audit_draws

    with pytest.raises(UsageError, match="confidence"):
        audit_draws(lambda samples, times, noise: np.zeros(1), [], None, confidence=1.0)


def test_a_delta_that_is_none_is_refused():
    from trafficdp.audit.lower_bound import audit_draws

    with pytest.raises(UsageError, match="delta"):
        audit_draws(lambda samples, times, noise: np.zeros(1), [], None, delta=1.0)


@pytest.mark.slow
def test_what_delta_allows_proves_nothing():
    # an output that only one side can give, with probability 2 %
    random = np.random.default_rng(4)
    left, right = (random.random(200_000) < 0.02).astype(float), np.zeros(200_000)
    assert lower_bound_from_draws(left, right, 1e-6)[0] > 4
    assert lower_bound_from_draws(left, right, 1e-6, delta=0.03)[0] == 0.0
    assert (
        0
        < lower_bound_from_draws(left, right, 1e-6, delta=0.015)[0]
        < lower_bound_from_draws(left, right, 1e-6)[0]
    )


def test_agreeing_neighbours_differ_in_one_of_many(bound_of):
    for pair in agreeing_neighbours(bound_of(64), users=30):
        assert (pair.left.value != pair.right.value).sum() == 1
        assert pair.left.counts.pairs == 30
