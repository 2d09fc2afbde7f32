"""Intervals of every mechanism hold the sample statistic at least as often as they say.

Everything as in a release but the source of noise: clamping, the variance kept below mean (U - mean), and
speeds that were rounded to the step; the truth is the statistic of the speeds before they were rounded.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from trafficdp.mechanisms.known_error import BY_RANGE, KnownTerms, law_of_mechanism
from trafficdp.mechanisms.per_statistic_map import (
    PerStatisticMechanism,
    StatisticMechanism,
    mechanism_named,
    mechanisms_of,
)
from trafficdp.mechanisms.protocol import PublicFacts, StatisticRequest
from trafficdp.model import ContributionBound, Counts, SpeedUnit, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Samples, SensitiveInputs

UPPER, STEP, LEVEL = 30, 0.5, 0.9
# one bin that a vehicle dominates, one of equals, one of many: each many times
COUNTS = [[9, 3, 2, 1, 1, 0, 0, 0], [2, 2, 2, 2, 0, 0, 0, 0], [1, 3, 1, 4, 2, 1, 2, 5]]
KINDS = ["any", "half a step down", "slow", "fast or slow", "full"]
FEW_KINDS = {0.7: ["any", "fast or slow", "full"], 6.0: ["half a step down", "slow"]}
"""Where much noise is clamped, and where roundings and biases are much beside the noise."""
NAMES = [mechanism.name for mechanism in mechanisms_of(LossKind.PURE)]
KNOWN = [name for name in NAMES if isinstance(mechanism_named(name, LossKind.PURE), KnownTerms)]
SELECT = ("akmv", "levy", "two_stage")
"""Those that select from values only state the range, which holds whatever was drawn."""
EDGE, REJECT = 1e-9, 1e-9
TIMES = 3_400


def speeds(kind, size):
    random = np.random.default_rng(5)
    whole = random.integers(1, int(UPPER / STEP) - 1, size) * STEP
    return {
        "any": random.uniform(0, UPPER, size),
        "half a step down": whole + STEP * 0.49999,
        "slow": random.uniform(0, 0.6 * STEP, size),
        "fast or slow": random.choice([0.0, UPPER], size),
        "full": np.full(size, float(UPPER)),
    }[kind]


def many_times(times):
    table = np.array(COUNTS)
    bins, users = np.nonzero(table)
    return Counts(
        cell=np.arange(1, times * len(table) + 1, dtype=np.uint64),
        slot=np.zeros(times * len(table), dtype=np.int64),
        users_per_bin=np.tile(np.count_nonzero(table, axis=1), times),
        user_index=np.tile(users, times).astype(np.int64),
        count=np.tile(table[bins, users], times).astype(np.int64),
        users=table.shape[1],
    )


def truths(exact, statistic):
    """The statistic of each of the three bins, from the definition."""
    ends = np.cumsum([sum(row) for row in COUNTS])
    found = []
    for row, of_bin in zip(COUNTS, np.split(exact, ends[:-1]), strict=True):
        if statistic is Statistic.VEHICLE_MEAN:
            own = np.split(of_bin, np.cumsum([count for count in row if count])[:-1])
            found.append(np.mean([each.mean() for each in own]))
        else:
            found.append(of_bin.mean() if statistic is Statistic.MEAN else of_bin.var())
    return np.array(found)


def released(name, kind, epsilon, times):
    """The truths and the estimates of a release of every statistic that the mechanism knows."""
    counts = many_times(times)
    bound = ContributionBound(Fraction(UPPER), Fraction(str(STEP)), SpeedUnit.METRES_PER_SECOND)
    exact = speeds(kind, sum(map(sum, COUNTS)))
    steps = np.floor(exact / STEP + 0.5).astype(np.int64)
    samples = Samples(counts, np.tile(steps, times), np.arange(counts.users), bound)
    part = StatisticMechanism(name, np.full(counts.bins, epsilon))
    parts = dict.fromkeys(mechanism_named(name, LossKind.PURE).statistics, part)
    calibrated = PerStatisticMechanism(PublicFacts(counts, bound), parts)
    estimates = calibrated.run(
        SensitiveInputs(samples.contributions(), lambda: samples),
        SimulatedNoise(3),
        interval_level=LEVEL,
    )
    return {statistic: truths(exact, statistic) for statistic in estimates}, estimates


def missed(estimate, truth, half=1.0):
    """How often an interval, its half width times ``half``, did not hold the truth, a bin of the three."""
    middle, reach = estimate.value.reshape(-1, 3), half
    low = middle - (middle - estimate.low.reshape(-1, 3)) * reach
    high = middle + (estimate.high.reshape(-1, 3) - middle) * reach
    return np.count_nonzero((low > truth + EDGE) | (high < truth - EDGE), axis=0)


def rarely(misses, times):
    """How likely so many intervals of ``times`` miss that miss as often as they may."""
    return stats.binom.sf(misses - 1, times, 1 - LEVEL)


def test_so_many_draws_would_show_noise_that_is_wider_by_30_percent():
    # a tail that is 10 % at its own scale is 17 % at 1.3 times the scale
    fewest = stats.binom.isf(REJECT, TIMES, 1 - LEVEL)
    assert rarely(fewest + 1, TIMES) <= REJECT
    assert stats.binom.cdf(fewest + 1, TIMES, (1 - LEVEL) ** (1 / 1.3)) < REJECT


def cases_of(names):
    """Parameters; wrap around is best fit with samples in arrays of another order, and left to the proofs."""
    return [
        pytest.param(name, marks=pytest.mark.prove if name.endswith("wrap_around") else ()) for name in names
    ]


@pytest.mark.parametrize("name", cases_of(NAMES))
@pytest.mark.parametrize("epsilon", [0.7, 6.0])
@pytest.mark.parametrize("more", [1, pytest.param(8, marks=pytest.mark.prove)])
def test_intervals_hold_the_truth_at_least_as_often_as_they_say(name, epsilon, more):
    # Huber's search is slow, and its noise is idealised
    times = more * (400 if mechanism_named(name, LossKind.PURE).idealised else TIMES)
    for kind in FEW_KINDS[epsilon] if more == 1 else KINDS:
        truth, estimates = released(name, kind, epsilon, times)
        for statistic, estimate in estimates.items():
            assert np.all(estimate.low <= estimate.value)
            assert np.all(estimate.value <= estimate.high)
            for misses in missed(estimate, truth[statistic]):
                assert rarely(misses, times) > REJECT, (kind, statistic)


def shows_half_the_width(name):
    """Whether intervals of 0.3 times the width miss too often at some epsilon and kind of speeds."""
    return any(
        rarely(missed(estimate, truth[statistic], 0.3).max(), TIMES) < REJECT
        for epsilon in (0.7, 6.0)
        for kind in KINDS
        for truth, estimates in [released(name, kind, epsilon, TIMES)]
        for statistic, estimate in estimates.items()
    )


@pytest.mark.parametrize("name", cases_of(name for name in KNOWN if not name.startswith(SELECT)))
def test_intervals_of_half_the_width_would_be_noticed(name):
    assert shows_half_the_width(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_basis_is_said_and_the_range_where_nothing_less_is_proved(name):
    counts = many_times(1)
    bound = ContributionBound(Fraction(UPPER), Fraction(str(STEP)), SpeedUnit.METRES_PER_SECOND)
    mechanism = mechanism_named(name, LossKind.PURE)
    for statistic in mechanism.statistics:
        (wide, basis), (narrow, _) = (
            law_of_mechanism(mechanism, StatisticRequest(counts, bound, statistic, np.full(3, 8.0)), level)
            for level in (0.99, 0.8)
        )
        reach = statistic.largest(UPPER)
        assert np.all(narrow.half_width <= wide.half_width)
        assert np.all((wide.half_width > 0) & (wide.half_width <= reach))
        assert np.all(wide.bias <= reach)
        assert (basis == BY_RANGE) <= bool(np.all(wide.half_width == reach))
