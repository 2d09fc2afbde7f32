"""The posterior of a map: right where cities are as it takes them, and the same as by brute force."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from trafficdp.mechanisms.pooling import posterior as own
from trafficdp.mechanisms.pooling.posterior import (
    LAMBDA,
    SCALE_SD,
    SCALES,
    Bins,
    OneNumber,
    Places,
    lambda_of,
    log_laplace_normal,
    posterior,
    speed_of,
    variance_posterior,
)

UPPER = 30.0
MANY = 20_000
FLAT = OneNumber(6.0, np.full(MANY, 0.2), np.full(MANY, 0.1))


def student(centre, sigma, rng):
    """Speeds of places, Student about ``centre`` on the scale of lambda, kept on its grid."""
    weight = (1 + ((LAMBDA - lambda_of(centre, UPPER)[:, None]) / sigma[:, None]) ** 2 / 4) ** -2.5
    total = np.cumsum(weight / weight.sum(axis=1, keepdims=True), axis=1)
    at = (total < rng.random(len(centre))[:, None]).sum(axis=1).clip(0, len(LAMBDA) - 1)
    return speed_of(LAMBDA[at], UPPER)


def alone(places, many, **changed):
    """Every place a bin of its own, whose map is the centre."""
    nothing = np.zeros(many)
    bins = Bins(np.arange(many), nothing, nothing, places.centre)
    return replace(bins, **changed)


def answered(rng, many, scale=1.5):
    """(places, truth): Laplace noise on distances of which a bound leaves less, the farther they are."""
    centre, sigma, doubt = rng.uniform(3, 12, many), rng.uniform(0.1, 0.4, many), np.full(many, 0.1)
    truth = student(centre, np.hypot(scale * sigma, doubt), rng)
    noise, sampling = rng.uniform(0.3, 3, many), rng.uniform(0.01, 0.5, many)

    def left(distance):
        return np.minimum(1, 4 / np.maximum(np.abs(distance), 1e-9)) * distance

    answer = left(truth - centre) + rng.laplace(0, noise) + rng.normal(0, np.sqrt(sampling))
    speeds = speed_of(LAMBDA, UPPER)

    def likelihood(rows):
        off = answer[rows, None] - left(speeds - centre[rows, None])
        return log_laplace_normal(off, noise[rows, None], sampling[rows, None])

    return Places(centre, sigma, doubt, likelihood, np.ones(many, dtype=np.bool_)), truth


def binomial_bound(level):
    """Six standard deviations of a share of MANY."""
    return 6 * np.sqrt(level * (1 - level) / MANY)


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_intervals_errors_and_chances_are_right_where_the_prior_is(shift):
    """Bins lie ``shift`` above their places, give or take a fifth: with power, on both sides."""
    rng = np.random.default_rng(1)
    places, truth = answered(rng, MANY)
    moved = speed_of(lambda_of(truth, UPPER) + shift + rng.normal(0, 0.2, MANY), UPPER)
    bins = alone(places, MANY, shift=np.full(MANY, shift), sd=np.full(MANY, 0.2))
    # the map is the median where none is given a share
    found = posterior(places, bins, FLAT, UPPER)
    for level, (low, high) in found.ends.items():
        held = np.mean((low - 1e-9 <= moved) & (moved <= high + 1e-9))
        # a factor of 1.3 of all widths moves these shares by 0.04 to 0.1
        assert held == pytest.approx(level, abs=binomial_bound(level) + 0.006)
    assert found.scale == pytest.approx(1.5, rel=0.1)
    assert found.error.mean() == pytest.approx(np.abs(found.value - moved).mean(), rel=0.05)
    for chance, happened in ((found.slower, moved < 4.8), (found.faster, moved > 7.2)):
        for low in (0.0, 0.2, 0.4, 0.6, 0.8):
            some = (chance >= low) & (chance < low + 0.2)
            sd = np.sqrt(some.sum()) / 2 / some.sum()
            assert chance[some].mean() == pytest.approx(happened[some].mean(), abs=6 * sd + 0.01)


@pytest.mark.parametrize("kept", [0, own.MOST_KEPT])
def test_it_is_the_posterior_by_brute_force(kept, monkeypatch):
    """Three places, every factor of spreads, every speed of the grid; nothing shared with the code."""
    monkeypatch.setattr(own, "MOST_KEPT", kept)
    rng = np.random.default_rng(2)
    places, _ = answered(rng, 3)
    bins = alone(places, 3, map=np.full(3, 1e9))
    found = posterior(places, bins, OneNumber(6.0, np.full(3, 0.2), np.full(3, 0.1)), UPPER)
    likelihood = np.exp(places.log_likelihood(np.arange(3)))
    share, joint = [], []
    for scale in SCALES:
        sd = np.sqrt((scale * places.sigma) ** 2 + places.doubt**2)
        z = (LAMBDA - np.log(1 + places.centre)[:, None]) / sd[:, None]
        prior = (1 + z**2 / 4) ** -2.5
        both = prior / prior.sum(axis=1)[:, None] * likelihood
        share.append(np.prod(both.sum(axis=1)) * np.exp(-(np.log(scale) ** 2) / (2 * SCALE_SD**2)))
        joint.append(both / both.sum(axis=1)[:, None])
    exact = np.einsum("a,apx->px", np.array(share) / np.sum(share), np.array(joint))
    speed = np.exp(LAMBDA) - 1
    # a value that is far away is kept at the 80 % interval's end
    np.testing.assert_array_equal(found.value, found.ends[0.8][1])
    error = (exact * np.abs(speed - found.value[:, None])).sum(axis=1)
    np.testing.assert_allclose(found.error, error, rtol=1e-3)
    for chance, (low, high) in found.ends.items():
        for end, outside in ((low, (1 - chance) / 2), (high, (1 + chance) / 2)):
            step = LAMBDA[1]
            below = np.clip((np.log(1 + end)[:, None] - LAMBDA) / step + 0.5, 0, 1)
            np.testing.assert_allclose((exact * below).sum(axis=1), outside, atol=2e-3)
    for chance, end in ((found.slower, 0.8 * 6.0), (1 - found.faster, 1.2 * 6.0)):
        below = np.clip((np.log(1 + end) - LAMBDA) / LAMBDA[1] + 0.5, 0, 1)
        np.testing.assert_allclose((exact * below).sum(axis=1), chance, atol=2e-3)


@pytest.mark.parametrize("sd", [0.02, 0.3])
def test_a_place_moves_as_a_normal_says(sd):
    """One place known exactly: its bins are N(its lambda + shift, sd^2), far from the ends of the grid."""
    at = 70
    log = np.where(np.arange(len(LAMBDA)) == at, 0.0, -500.0)[None]
    place = Places(
        speed_of(LAMBDA[[at]], UPPER), np.ones(1), np.zeros(1), lambda rows: log[rows], np.ones(1, dtype=bool)
    )
    shift, many = np.array([-0.4, 0.0, 0.3]), 3
    bins = Bins(np.zeros(many, dtype=np.int64), shift, np.array([sd, sd, 0.4]), np.zeros(many))
    found = posterior(place, bins, OneNumber(6.0, np.ones(many), np.ones(many)), UPPER)
    for level, (low, high) in found.ends.items():
        half = ndtri((1 + level) / 2) * bins.sd
        for end, expected in ((low, -half), (high, half)):
            np.testing.assert_allclose(
                lambda_of(end, UPPER), LAMBDA[at] + shift + expected, atol=0.006 if sd > 0.1 else 0.012
            )


def test_numbers_do_not_depend_on_the_order_of_bins_and_places():
    rng = np.random.default_rng(3)
    many = 700
    places, _ = answered(rng, many)
    bins = alone(places, many, shift=rng.normal(0, 0.2, many), sd=rng.uniform(0, 0.2, many))
    flat = OneNumber(6.0, np.full(many, 0.2), np.full(many, 0.1))
    found = posterior(places, bins, flat, UPPER)
    order = rng.permutation(many)
    mixed = Bins(*(getattr(bins, name)[order] for name in ("place", "shift", "sd", "map")))
    again = posterior(places, mixed, flat, UPPER)
    for name in ("value", "error", "slower", "faster", "informed"):
        np.testing.assert_allclose(getattr(again, name), getattr(found, name)[order], rtol=1e-9)


def test_a_number_that_says_no_more_than_one_for_the_city_is_marked():
    """Half of the places were answered by nothing but noise: they have the prior's interval."""
    many = 400
    asked = np.arange(many) < many // 2
    centre, sigma, doubt = np.full(many, 6.0), np.full(many, 0.2), np.full(many, 0.1)
    truth = student(centre, np.hypot(sigma, doubt), np.random.default_rng(4))

    def likelihood(rows):
        return (
            -1.0 * asked[rows, None] * (lambda_of(truth[rows], UPPER)[:, None] - LAMBDA) ** 2 / (2 * 0.1**2)
        )

    known = Places(centre, sigma, doubt, likelihood, asked)
    found = posterior(known, alone(known, many), OneNumber(6.0, sigma, doubt), UPPER)
    assert not found.informed[~asked].any()
    assert found.informed[asked].mean() > 0.9


def test_a_normal_beside_laplace_noise_has_their_density():
    off = np.linspace(-6, 6, 25)[:, None]
    x = np.linspace(-60, 60, 240_001)
    normal = np.exp(-((off - x) ** 2) / (2 * 0.5)) / np.sqrt(2 * np.pi * 0.5)
    exact = (normal * np.exp(-np.abs(x) / 1.3) / 2.6).sum(axis=1) * (x[1] - x[0])
    found = np.exp(log_laplace_normal(off[:, 0], np.array(1.3), np.array(0.5)))
    np.testing.assert_allclose(found / found.sum(), exact / exact.sum(), rtol=1e-5)


@pytest.mark.parametrize("what", ["factor", "moved"])
def test_a_posterior_that_forgets_something_is_caught(what, monkeypatch):
    """The spreads' factor taken as 1 where it is 3, and what bins differ from places left out."""
    rng = np.random.default_rng(5)
    scale, sd = (3.0, 0.0) if what == "factor" else (1.5, 0.3)
    places, truth = answered(rng, MANY, scale)
    moved = speed_of(lambda_of(truth, UPPER) + rng.normal(0, 1, MANY) * sd, UPPER)
    bins = alone(places, MANY, sd=np.full(MANY, sd))

    def held():
        low, high = posterior(places, bins, FLAT, UPPER).ends[0.8]
        return np.mean((low - 1e-9 <= moved) & (moved <= high + 1e-9))

    assert held() == pytest.approx(0.8, abs=0.03)
    if what == "factor":
        monkeypatch.setattr(own, "_scale_share", lambda *_: np.eye(len(SCALES))[4])
    else:
        monkeypatch.setattr(own, "_moved", lambda weight, *_: weight)
    assert held() < 0.75


@pytest.mark.slow
def test_variances_spread_as_much_more_as_means_do_and_never_less():
    found, many = np.array([5.0, 20.0]), np.full(2, np.inf)

    def lengths(scale):
        ends = variance_posterior(found, 0.0, many, found / found, (found * 9, 225.0), scale).ends
        return [np.log(end / (found * np.exp(-own.VARIANCE_SHIFT))) for end in ends[0.8]]

    for usual, quiet, wide in zip(lengths(1.0), lengths(0.5), lengths(2.0), strict=True):
        np.testing.assert_allclose(quiet, usual)
        np.testing.assert_allclose(wide, 2 * usual)


def test_variances_of_few_records_are_as_wide_as_samples_are(monkeypatch):
    for name in ("VARIANCE_SHIFT", "VARIANCE_UP", "VARIANCE_DOWN"):
        monkeypatch.setattr(own, name, 0.0)
    monkeypatch.setattr(own, "KURTOSIS", 3.0)
    for records in (4, 8, 30):
        truth = np.random.default_rng(records).normal(0.0, 2.0, (MANY, records)).var(axis=1)
        same = np.full(MANY, 4.0)
        found = variance_posterior(same, 0.0, np.full(MANY, records), same, (same * 9, 225.0))
        for level, (low, high) in found.ends.items():
            assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(level, abs=0.03)
        assert found.value.mean() == pytest.approx(truth.mean(), rel=0.02)
        assert found.error.mean() == pytest.approx(np.abs(found.value - truth).mean(), rel=0.05)


def test_twenty_thousand_places_take_two_seconds_of_a_processor_and_little_memory():
    import time
    import tracemalloc

    places, _ = answered(np.random.default_rng(6), MANY)

    def seconds():
        begin = time.process_time()
        posterior(places, alone(places, MANY), FLAT, UPPER)
        return time.process_time() - begin

    # a second, where nothing else runs
    assert any(seconds() < 2 for _ in range(3))
    tracemalloc.start()
    posterior(places, alone(places, MANY), FLAT, UPPER)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 300e6
