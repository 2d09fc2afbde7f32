"""Published intervals hold the sample statistic at least as often as they say.

Everything as in a release: discrete noise, clamping, rounding of speeds to the step, publication in another
unit with three decimals. The truth is the statistic of the speeds as they were before rounding to the step.
"""

from datetime import UTC, date, datetime
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.model import (
    OF_MAPS,
    ContributionBound,
    Counts,
    Grid,
    MapRequest,
    Period,
    SlotKind,
    SpeedUnit,
    Statistic,
    StudyArea,
)
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.release import LedgerReference, Release, SlotFacts, published_frame
from trafficdp.sensitive import Contributions, SensitiveInputs

DRAWS = 20_000
MANY = 100_000
more = pytest.mark.parametrize("draws", [DRAWS, pytest.param(MANY, marks=pytest.mark.prove)])
EDGE = 1e-9
"""Speeds, in the unit of the bound: comparisons are in floats."""
UPPER = 30
DISPLAY = SpeedUnit.KILOMETRES_PER_HOUR
KINDS = ["any", "on the lattice", "half a step up", "half a step down", "slow", "fast or slow"]


def speeds(kind, vehicles, records, step):
    """Speeds in [0, U], shape (vehicles, records), before they are rounded to the step."""
    random = np.random.default_rng(11)
    shape = (vehicles, records)
    whole = random.integers(1, int(UPPER / step) - 1, shape) * step
    return {
        "any": random.uniform(0, UPPER, shape).round(2),
        "on the lattice": whole,
        "half a step up": whole + step / 2,
        "half a step down": whole + step * 0.49999,
        "slow": random.uniform(0, 0.6 * step, shape),
        "fast or slow": random.choice([0.0, UPPER], shape),
    }[kind]


def published(kind, step, scale, level, draws=MANY, shift=0, mean_scale=None):
    """(frame, truth a statistic, estimates): one city, released in ``draws`` equal bins."""
    vehicles, records = 3, 4
    exact = speeds(kind, vehicles, records, step)
    steps = np.floor(exact / step + 0.5).astype(np.int64)
    bound = ContributionBound(Fraction(UPPER), Fraction(str(step)), SpeedUnit.METRES_PER_SECOND)
    counts = Counts(
        cell=np.arange(draws, dtype=np.uint64),
        slot=np.zeros(draws, dtype=np.int64),
        users_per_bin=np.full(draws, vehicles),
        user_index=np.tile(np.arange(vehicles), draws),
        count=np.full(draws * vehicles, records),
        users=vehicles,
    )
    city = Contributions(
        counts,
        np.tile(steps.sum(axis=1), draws),
        np.tile((steps**2).sum(axis=1), draws),
        np.arange(vehicles),
        bound,
    )
    own = scale if mean_scale is None else mean_scale
    scales = {Statistic.MEAN: own, Statistic.VARIANCE: scale, Statistic.VEHICLE_MEAN: scale}
    calibrated = CalibratedLaplace(
        PublicFacts(counts, bound),
        OF_MAPS,
        {s: np.full(draws, each) for s, each in scales.items()},
        np.full(draws, shift),
    )
    estimates = calibrated.run(SensitiveInputs(city, lambda: None), SimulatedNoise(0), interval_level=level)
    stated = [SimpleNamespace(statistic=each.column(DISPLAY), interval_kind="guaranteed") for each in OF_MAPS]
    release = Release(
        id="r0001",
        created_at=datetime(2024, 1, 1, tzinfo=UTC),
        grid=Grid(
            7,
            SlotKind.WHOLE_PERIOD,
            StudyArea.from_bbox(0, 0, 1, 1),
            Period(date(2024, 1, 1), date(2024, 1, 2), "UTC"),
        ),
        request=MapRequest(bound, 1, level, DISPLAY),
        cell=counts.cell,
        slot=counts.slot,
        status=np.full(draws, "released", dtype=object),
        place=np.full(draws, "", dtype=object),
        vehicles=None,
        records=None,
        estimates=estimates,
        slots={0: SlotFacts("all", None, None)},
        ledger=LedgerReference(1, "0" * 64),
        disclosure=SimpleNamespace(mechanisms=stated),
    )
    factor = 3.6
    truth = {
        Statistic.MEAN: exact.mean() * factor,
        Statistic.VARIANCE: exact.var() * factor**2,
        Statistic.VEHICLE_MEAN: exact.mean(axis=1).mean() * factor,
    }
    return published_frame(release), truth, estimates


def misses(frame, statistic, truth):
    name = statistic.column(DISPLAY)
    low, high = frame[f"{name}_low"].to_numpy(), frame[f"{name}_high"].to_numpy()
    assert np.all(low <= frame[name])
    assert np.all(frame[name] <= high)
    return int(np.count_nonzero((low > truth + EDGE) | (high < truth - EDGE)))


@pytest.mark.parametrize(("level", "wider"), [(0.5, 1.14), (0.9, 1.12), (0.99, 1.19)])
def test_so_many_draws_would_show_noise_that_is_a_little_wider(level, wider):
    # of Laplace noise that is so many times as wide the share 1 - level becomes its root
    fewest = stats.binom.isf(1e-9, DRAWS, 1 - level)
    assert stats.binom.cdf(fewest + 1, DRAWS, (1 - level) ** (1 / wider)) < 1e-9


@more
@pytest.mark.parametrize(
    ("kind", "scale"),
    [(kind, scale) for kind in KINDS for scale in (0.4, 7.3)] + [("any", 1.0), ("any", 60.0)],
)
def test_intervals_hold_the_truth_at_least_as_often_as_they_say(kind, scale, draws):
    level = 0.9
    frame, truth, _ = published(kind, 0.5, scale, level, draws)
    for statistic in OF_MAPS:
        missed = misses(frame, statistic, truth[statistic])
        assert stats.binom.sf(missed - 1, draws, 1 - level) > 1e-9, statistic


@more
@pytest.mark.parametrize("level", [0.5, 0.99])
def test_other_levels_are_kept_too(level, draws):
    frame, truth, _ = published("any", 0.1, 12.0, level, draws)
    for statistic in OF_MAPS:
        missed = misses(frame, statistic, truth[statistic])
        assert stats.binom.sf(missed - 1, draws, 1 - level) > 1e-9, statistic


@more
@pytest.mark.parametrize("kind", ["any", "on the lattice", "slow"])
@pytest.mark.parametrize("shift", [-6, -14])
def test_a_coarser_lattice_keeps_the_level(shift, kind, draws):
    # at 2^14 flooring moves a variance four times as far as rounding to the step does
    for scale in (0.3, 9.0):
        frame, truth, _ = published(kind, 0.1, scale, 0.9, draws, shift)
        missed = misses(frame, Statistic.VARIANCE, truth[Statistic.VARIANCE])
        assert stats.binom.sf(missed - 1, draws, 0.1) > 1e-9


def test_smooth_intervals_are_hardly_wider_than_they_must_be():
    # speeds on a fine lattice, noise of 40 to 100 times the rounding: nearly nothing to spare
    level = 0.9
    frame, truth, estimates = published("on the lattice", 0.01, 1_000.0, level)
    for statistic in (Statistic.MEAN, Statistic.VEHICLE_MEAN):
        share = misses(frame, statistic, truth[statistic]) / MANY
        assert 1 - level - 0.01 < share <= 1 - level + 0.006
    # the mean must be good here: keeping a variance below mean (U - mean) only ever widens its interval
    wide = published("on the lattice", 0.01, 1e6, level, mean_scale=1.0)
    share = misses(wide[0], Statistic.VARIANCE, wide[1][Statistic.VARIANCE]) / MANY
    assert 1 - level - 0.02 < share <= 1 - level + 0.006
    half = (estimates[Statistic.MEAN].high - estimates[Statistic.MEAN].low)[0] / 2
    assert half <= 1_000 * 0.01 / 12 * np.log(10) * 1.02


def test_a_level_that_is_not_kept_would_be_noticed():
    # intervals for half the noise
    level, scale = 0.9, 60.0
    frame, truth, estimates = published("on the lattice", 0.5, scale, level, DRAWS)
    narrow = frame.copy()
    name = Statistic.MEAN.column(DISPLAY)
    half = (estimates[Statistic.MEAN].high - estimates[Statistic.MEAN].low) / 4 * 3.6
    narrow[f"{name}_low"] = np.minimum(narrow[name], narrow[name] - half)
    narrow[f"{name}_high"] = np.maximum(narrow[name], narrow[name] + half)
    missed = misses(narrow, Statistic.MEAN, truth[Statistic.MEAN])
    assert stats.binom.sf(missed - 1, DRAWS, 1 - level) < 1e-9


@pytest.mark.parametrize("scale", [0.4, 7.3, 200.0])
def test_expected_errors_are_upper_bounds_of_the_mean_error(scale):
    frame, truth, _ = published("any", 0.5, scale, 0.9)
    for statistic in (Statistic.MEAN, Statistic.VEHICLE_MEAN):
        name = statistic.column(DISPLAY)
        error = np.abs(frame[name] - truth[statistic])
        assert error.mean() - 6 * error.std() / np.sqrt(MANY) <= frame[f"{name}_expected_error"][0]
