"""How much likelier all that a mechanism measures is on one data set than on the other, draw by draw."""

import numpy as np
import pytest

from trafficdp.audit.lower_bound import audit_mechanism, expected_lower_bound, likelihood_ratios
from trafficdp.audit.neighbours import extreme_neighbours, ranked_neighbours
from trafficdp.mechanisms.per_statistic_map import MECHANISMS
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
# the most that one transcript tells, of a claim of 1; a mechanism of means shares it out for a variance
LEAST_SEEN = {
    ("baseline", MEAN): 0.99,
    ("baseline", VARIANCE): 0.9,
    ("levy_wrap_around", MEAN): 0.9,
    ("two_stage", MEAN): 0.9,
    ("fixed_quantile_best_fit", MEAN): 0.8,
    ("fixed_quantile_wrap_around", VARIANCE): 0.6,
    ("optimized_quantile_best_fit", MEAN): 0.8,
    ("akmv", MEAN): 0.85,
    ("akmv", VARIANCE): 0.6,
}
DRAWS = 5_000


def named(name):
    return next(each for each in MECHANISMS if each.name == name)


@pytest.mark.parametrize("which", LEAST_SEEN, ids=lambda which: f"{which[0]}-{which[1].value}")
def test_no_transcript_tells_more_than_is_claimed_and_some_nearly_as_much(which, bound_of):
    """Probabilities are exact: of pure epsilon no single transcript may be likelier by more than its factor.

    And as probabilities do, those of the other data set add up to 1 over what is drawn from this one.
    """
    mechanism, statistic = named(which[0]), which[1]
    pairs = [*extreme_neighbours(bound_of(64))[1:2], *ranked_neighbours(bound_of(64))[-4::3]]
    ratios, noise, most = likelihood_ratios(mechanism, statistic, 1.0, pairs), SimulatedNoise(1), 0.0
    for pair in pairs:
        for side, sign in ((pair.left, 1), (pair.right, -1)):
            told = sign * ratios(side, DRAWS, noise)
            assert np.abs(told).max() <= 1 + 1e-9, pair
            # at most e each, so that seven standard errors are less
            assert np.exp(-told).mean() == pytest.approx(1, abs=7 * 0.85 / np.sqrt(DRAWS)), pair
            most = max(most, float(np.abs(told).max()))
    assert most > LEAST_SEEN[which]


@pytest.mark.parametrize("name", ["optimized_quantile_best_fit", "akmv"])
def test_a_choice_at_an_eighth_of_its_scale_is_refuted_and_at_its_own_it_is_not(name, bound_of):
    class Surer(SimulatedNoise):
        def choose(self, cost, weight, start, scale, runs=1):
            return super().choose(cost, weight, start, scale / 8, runs)

    def found(noise):
        return audit_mechanism(
            named(name), MEAN, 1.0, bound_of(64), noise, draws=10_000, confidence=1 - 1e-9
        ).epsilon

    assert 0.15 < found(SimulatedNoise(2)) <= 1 < found(Surer(2))


def test_equal_ratios_are_one_number(bound_of):
    """In whatever order they were added up. The sum moves by 64 steps, that of the products does not move."""
    pair = extreme_neighbours(bound_of(64))[1]
    told = likelihood_ratios(named("baseline"), VARIANCE, 1.0, [pair])(pair.left, DRAWS, SimulatedNoise(1))
    assert len(np.unique(told)) == 65


def test_of_rho_it_is_the_ratio_of_gaussians(bound_of):
    """A gaussian twin's sum of a bin moves by sqrt(2 rho) of its standard deviation: so does the ratio."""
    twin = next(each for each in MECHANISMS if each.kind is LossKind.ZCDP)
    pairs = extreme_neighbours(bound_of(64))[:1]
    told = likelihood_ratios(twin, MEAN, 0.5, pairs)(pairs[0].left, DRAWS, SimulatedNoise(3))
    # of law N(rho, 2 rho)
    assert told.mean() == pytest.approx(0.5, abs=7 / np.sqrt(DRAWS))
    assert told.std() == pytest.approx(1, abs=7 / np.sqrt(2 * DRAWS))


def test_what_is_promised_is_nearly_what_many_draws_prove():
    """Of two data sets that are told apart by an event of probability 1/4 on one, 1/8 on the other."""
    told = np.where(np.arange(4_000) < 1_000, np.log(2), np.log((3 / 4) / (7 / 8)))
    assert expected_lower_bound(told, 10**8, 0.0) == pytest.approx(np.log(2), abs=0.01)
    assert expected_lower_bound(told, 10**8, 0.125) == pytest.approx(0, abs=0.01)
    assert expected_lower_bound(told, 100, 0.0) < 0.3
