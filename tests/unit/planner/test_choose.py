"""The choice looks at counts alone, spends no more than the total, and never takes an idealised mechanism."""

import inspect
from dataclasses import dataclass, replace

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms import means, protocol
from trafficdp.mechanisms.laplace.calibrated import Baseline
from trafficdp.mechanisms.per_statistic.clipping import WorstCaseClipping
from trafficdp.mechanisms.per_statistic_map import mechanisms_of
from trafficdp.mechanisms.protocol import ClaimedNoise, StatisticRequest
from trafficdp.mechanisms.simulated_cities import SimulatedCities, simulated_samples
from trafficdp.model import OF_MAPS, Statistic
from trafficdp.planner import choose as choose_module
from trafficdp.planner.choose import (
    LOSS_FIT_TOLERANCE,
    Offer,
    Split,
    best_of,
    choose,
    constant_error,
    fit,
    offers,
)
from trafficdp.privacy.loss import LossKind, PureDP

TABLE = [
    [3, 1, 2, 1, 4, 2, 0, 1],
    [1, 1, 0, 2, 0, 1, 5, 1],
    [0, 2, 6, 1, 1, 1, 1, 2],
    [2, 2, 2, 2, 2, 2, 2, 2],
]
MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
CASES = [(m, s) for m in mechanisms_of(LossKind.PURE) for s in m.statistics]


@dataclass(frozen=True)
class Made:
    """A mechanism of given errors that costs every visitor its epsilon, for tests of the choice only."""

    name: str
    errors: tuple[float, ...]
    idealised: bool = False
    jumps_at: float | None = None
    kind: LossKind = LossKind.PURE
    enforced: bool = True

    citation = "none"
    statistics = (MEAN,)

    def steps(self, request):
        counts = request.counts
        each = request.loss[counts.bin_index]
        if self.jumps_at is not None:
            loss = np.bincount(counts.user_index, each, counts.users)
            each = np.where(loss > self.jumps_at, 3, 1)[counts.user_index] * each
        support = means.support_of(counts)
        return (ClaimedNoise(support, each, self.kind, "none", lambda size, below: np.zeros(size)),)

    def expected_error(self, request):
        return np.resize(np.array(self.errors), request.counts.bins)

    def estimate(self, samples, statistic, epsilon, noise):
        raise AssertionError("a choice made an estimate")


@pytest.fixture
def city(counts_of, bound_of):
    return counts_of(TABLE), bound_of(64)


@pytest.mark.parametrize("split", Split)
@pytest.mark.parametrize(("mechanism", "statistic"), CASES, ids=lambda case: getattr(case, "name", str(case)))
def test_the_largest_loss_is_the_total_and_never_above(mechanism, statistic, split, city):
    total = PureDP.of(6)
    found = fit(mechanism, *city, statistic, total, split)
    assert found.event.loss.pico <= total.pico
    again = protocol.event_of(mechanism, StatisticRequest(*city, statistic, found.given))
    assert again.loss.pico == found.event.loss.pico
    assert found.given.shape == (4,)
    assert bool(np.all(found.given > 0))
    more = protocol.event_of(mechanism, StatisticRequest(*city, statistic, found.given * 1.001))
    # nothing is left over: a thousandth more is too much
    assert more.loss.pico > total.pico


def test_the_same_epsilon_is_the_same_in_all_bins(city):
    found = fit(Baseline(), *city, MEAN, PureDP.of(2), Split.SAME_EPSILON)
    assert len(set(found.given.tolist())) == 1


def test_equal_noise_is_the_same_noise_in_all_bins(city):
    found = fit(Baseline(), *city, MEAN, PureDP.of(2), Split.EQUAL_NOISE)
    (sensitivity,) = found.event.sensitivity.values()
    scale = sensitivity / found.given
    np.testing.assert_allclose(scale, scale[0], rtol=1e-12)
    # closed form: the largest over vehicles of the sum of U m / N, over epsilon
    counts, bound = city
    each = counts.sum_per_user(64 * counts.count / counts.samples_per_bin[counts.bin_index])
    assert scale[0] == pytest.approx(each.max() / 2, rel=2 * LOSS_FIT_TOLERANCE)
    assert bound.upper == 64


def test_a_loss_that_jumps_over_the_total_stays_below_it(city):
    found = fit(Made("jump", (1.0,), jumps_at=3.0), *city, MEAN, PureDP.of(5), Split.SAME_EPSILON)
    assert found.event.loss.exact <= 3
    assert float(found.event.loss.exact) == pytest.approx(3.0, rel=1e-3)


def test_an_event_of_another_kind_is_refused(city):
    with pytest.raises(UsageError, match="does not count in epsilon"):
        fit(Made("other", (1.0,), kind=LossKind.ZCDP), *city, MEAN, PureDP.of(5), Split.SAME_EPSILON)


def test_of_the_two_splits_the_better_median_is_offered(city):
    for mechanism in (Baseline(), WorstCaseClipping()):
        (offer,) = offers(*city, MEAN, PureDP.of(8), [mechanism])
        medians = []
        for split in Split:
            found = fit(mechanism, *city, MEAN, PureDP.of(8), split)
            medians.append(np.median(mechanism.expected_error(StatisticRequest(*city, MEAN, found.given))))
        assert offer.median_error == min(medians)


def test_the_least_median_is_chosen_whatever_the_worst_bin(city):
    choice = choose(*city, MEAN, PureDP.of(1), [Made("a", (3.0,)), Made("b", (2.0, 2.0, 2.0, 30.0))])
    assert choice.chosen.mechanism == "b"
    assert (choice.chosen.median_error, choice.chosen.worst_error) == (2.0, 30.0)
    assert choice.reason.startswith(
        "b has the least median expected error at the worst values, 2 km/h; a has 3"
    )


def test_a_tie_goes_to_the_earlier_entry(city):
    pair = [Made("first", (2.0,)), Made("second", (2.0,))]
    assert choose(*city, MEAN, PureDP.of(1), pair).chosen.mechanism == "first"
    choice = choose(*city, MEAN, PureDP.of(1), pair[::-1])
    assert choice.chosen.mechanism == "second"
    assert "first has 2, which cannot be told from it, and is listed after it" in choice.reason


def test_what_fitting_cannot_tell_apart_is_a_tie(city):
    dust = [Made("plain", (2.0,)), Made("clever", (2.0 * (1 - LOSS_FIT_TOLERANCE),))]
    assert choose(*city, MEAN, PureDP.of(1), dust).chosen.mechanism == "plain"
    better = [Made("plain", (2.0,)), Made("clever", (1.9999,))]
    assert choose(*city, MEAN, PureDP.of(1), better).chosen.mechanism == "clever"


class SimulatedTries:
    """Errors in simulated cities, by name."""

    def __init__(self, **errors):
        self.errors = errors

    def error(self, mechanism, statistic, epsilon):
        return self.errors[mechanism.name]


def test_simulated_cities_decide(city):
    trio = [Made("safe", (20.0,)), Made("safer", (10.0,)), Made("bold", (40.0,))]
    tries = SimulatedTries(safe=5.0, safer=7.0, bold=1.0)
    choice = choose(*city, MEAN, PureDP.of(1), trio, cities=tries)
    assert choice.chosen.mechanism == "bold"
    assert choice.reason.startswith("bold has the least error in simulated cities, 1 km/h; safe has 5")
    # simulations cannot tell apart what differs by a hundredth
    close = SimulatedTries(safe=1.01, safer=7.0, bold=1.0)
    assert choose(*city, MEAN, PureDP.of(1), trio, cities=close).chosen.mechanism == "safe"


def test_an_idealised_mechanism_is_shown_and_never_chosen(city):
    choice = choose(*city, MEAN, PureDP.of(1), [Made("ideal", (0.1,), idealised=True), Made("real", (5.0,))])
    assert [offer.mechanism for offer in choice.offers] == ["ideal", "real"]
    assert choice.chosen.mechanism == "real"
    assert "not considered, without an exact sampler: ideal" in choice.reason


def test_an_event_that_calls_itself_idealised_is_not_chosen_either(city):
    (offer,) = offers(*city, MEAN, PureDP.of(1), [Made("ideal", (0.1,), idealised=True)])
    assert not replace(offer, idealised=False).eligible


def test_without_an_eligible_mechanism_there_is_no_choice(city):
    with pytest.raises(UsageError, match="no mechanism can release this"):
        choose(*city, MEAN, PureDP.of(1), [Made("ideal", (0.1,), idealised=True)])
    with pytest.raises(UsageError, match="does not count in epsilon"):
        choose(*city, MEAN, PureDP.of(1), [Made("other", (0.1,), kind=LossKind.ZCDP)])
    with pytest.raises(UsageError, match="no mechanism"):
        best_of([])


def test_what_is_unavailable_has_an_endless_error(city):
    offer = Offer("x", MEAN, False, None, np.empty(0), "why")
    assert (offer.median_error, offer.worst_error, offer.eligible) == (np.inf, np.inf, False)


def test_no_bin_is_refused(city):
    counts, bound = city
    with pytest.raises(UsageError, match="no bin"):
        choose(counts.select(np.zeros(4, dtype=bool)), bound, MEAN, PureDP.of(1))


@pytest.mark.slow
def test_a_choice_that_says_little_says_so(city):
    choice = choose(*city, MEAN, PureDP.of("0.01"))
    assert "at the worst values a constant is no further off, 32" in choice.reason
    assert "a constant" not in choose(*city, MEAN, PureDP.of(100)).reason
    assert constant_error(VARIANCE, city[1]) == 64**2 / 8


@pytest.mark.parametrize("statistic", OF_MAPS)
def test_the_registrys_choice_is_exact_and_the_least(statistic, city):
    choice = choose(*city, statistic, PureDP.of(4))
    assert [offer.mechanism for offer in choice.offers] == [
        mechanism.name for mechanism in mechanisms_of(LossKind.PURE) if statistic in mechanism.statistics
    ]
    assert not choice.chosen.idealised
    least = min(offer.median_error for offer in choice.offers if offer.eligible)
    assert least <= choice.chosen.median_error <= least * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("few_runs")
def test_no_value_is_given_to_a_choice_so_none_can_matter(city):
    for function in (choose, fit, offers):
        given = set(inspect.signature(function).parameters)
        assert given <= {
            *("counts", "bound", "statistic", "total"),
            *("mechanisms", "mechanism", "split", "cities", "display_unit"),
        }
    assert "sensitive" not in inspect.getsource(choose_module)
    # two cities that differ in every value have the same counts, and one choice
    samples = [simulated_samples(*city, seed) for seed in (1, 2)]
    assert bool(np.any(samples[0].value != samples[1].value))
    reasons = {
        choose(
            one.counts, one.bound, MEAN, PureDP.of(4), cities=SimulatedCities(one.counts, one.bound)
        ).reason
        for one in samples
    }
    assert len(reasons) == 1
