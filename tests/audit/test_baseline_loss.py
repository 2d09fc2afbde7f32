"""An exact audit: every data set, every neighbour, every outcome of tiny cities. Nothing is sampled.

The probabilities of discrete Laplace noise are geometric series, so the largest log-ratio of an outcome's
probability between neighbours is computed, not estimated, and compared with what is charged. Coordinates
of an outcome have independent noise: the largest log-ratio is the sum of each coordinate's largest. The sums
beneath the noise are those of the release's own path, from speeds to what is handed to the sampler.
"""

from itertools import product

import numpy as np
import pytest

from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.model import OF_MAPS, Statistic
from trafficdp.privacy.loss import CHARGE_STEP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
PICO = 10**12
# rows are bins, columns vehicles; at most 3^6 data sets at U = 2 steps
CITIES = {
    "two vehicles, one bin": [[2, 3]],
    "a dominating vehicle": [[4, 1]],
    "one vehicle alone": [[3, 0], [1, 0]],
    "three vehicles": [[1, 2, 2]],
    "two bins": [[2, 1], [1, 2]],
    "two bins, three vehicles": [[1, 1, 1], [2, 0, 1]],
}
SCALES = {MEAN: [3.0, 7.5], VEHICLE_MEAN: [2.5, 4.0]}


class Beneath:
    """Gives the sums that would be drawn around, and keeps them."""

    def __init__(self):
        self.sums = []

    def measure(self, step, values):
        return step.draw(self, values)

    def laplace(self, sums, scale):
        self.sums.extend(sums.tolist())
        return sums


def log_law(scale, centre, window):
    """log P(Y = y) for y in the window and Y = centre + discrete Laplace noise."""
    normaliser = np.log1p(-np.exp(-1 / scale)) - np.log1p(np.exp(-1 / scale))
    return normaliser - np.abs(window - centre) / scale


def log_ratio(scale, centre, neighbour):
    """The largest log-ratio over all outcomes; a window past both centres holds it."""
    window = np.arange(min(centre, neighbour) - 3, max(centre, neighbour) + 4)
    return float(np.max(log_law(scale, centre, window) - log_law(scale, neighbour, window)))


def data_sets(table, upper):
    """Every assignment of speeds 0..upper to the city's records: (values a vehicle, values[bin][vehicle])."""
    pairs = [(g, user, m) for g, row in enumerate(table) for user, m in enumerate(row)]
    for flat in product(range(upper + 1), repeat=sum(m for _, _, m in pairs)):
        values, of_user, start = [[None] * len(row) for row in table], {}, 0
        for g, user, m in pairs:
            values[g][user] = list(flat[start : start + m])
            of_user.setdefault(user, []).append(flat[start : start + m])
            start += m
        yield tuple(tuple(of_user[user]) for user in sorted(of_user)), values


def audited_losses(table, upper, calibrated, contributions_of, bound):
    """Every vehicle's exact privacy loss: the largest log-ratio over its neighbours and all outcomes."""
    centres = {}
    for key, values in data_sets(table, upper):
        beneath, city = Beneath(), contributions_of(values, bound)
        calibrated.numbers(city, beneath)
        centres[key] = tuple(beneath.sums)
    scales = np.concatenate([step.law.scale for step in calibrated.steps()])
    known = {}
    losses = []
    for user in range(len(table[0])):
        groups = {}
        for key, centre in centres.items():
            groups.setdefault(key[:user] + key[user + 1 :], set()).add(centre)
        worst = 0.0
        for outcomes in groups.values():
            for here, there in product(outcomes, repeat=2):
                total = 0.0
                for place, (a, b) in enumerate(zip(here, there, strict=True)):
                    if (place, a - b) not in known:
                        known[place, a - b] = log_ratio(scales[place], a, b) if scales[place] else 0.0
                        assert scales[place] or a == b, "a number without noise depends on values"
                    total += known[place, a - b]
                worst = max(worst, total)
        losses.append(worst)
    return np.array(losses)


def noise(statistics, counts, bound, *, factor=1.0, ratio=0.6, shift=0):
    """Noise of SCALES times ``factor``; of products ``ratio`` K times the means', over 2^-``shift``."""
    scale = {s: np.array(SCALES[s][: counts.bins]) * factor for s in SCALES if s in statistics}
    if VARIANCE in statistics:
        varies = counts.samples_per_bin > 1
        scale[MEAN] = np.array(SCALES[MEAN][: counts.bins]) * factor
        scale[VARIANCE] = np.where(varies, ratio * bound.upper_steps * scale[MEAN] * 2.0**shift, 0.0)
    return CalibratedLaplace(PublicFacts(counts, bound), statistics, scale, np.full(counts.bins, shift))


def claimed(calibrated):
    return calibrated.event().loss_per_user / PICO


@pytest.mark.parametrize("statistics", [(MEAN,), (VARIANCE,), (MEAN, VARIANCE), (VEHICLE_MEAN,), OF_MAPS])
@pytest.mark.parametrize("name", CITIES)
def test_what_is_charged_is_what_is_lost(name, statistics, counts_of, contributions_of, bound_of):
    table, bound = CITIES[name], bound_of(2)
    counts = counts_of(table)
    calibrated = noise(statistics, counts, bound)
    lost = audited_losses(table, 2, calibrated, contributions_of, bound)
    charged = claimed(calibrated)
    assert np.all(lost <= charged + 1e-13)
    if len(statistics) < len(OF_MAPS):
        np.testing.assert_allclose(lost, charged, atol=CHARGE_STEP / PICO + 1e-10)


@pytest.mark.parametrize("ratio", [0.2, 0.5652, 0.8, 1.0, 3.0])
@pytest.mark.parametrize(
    ("table", "upper"), [([[1, 2]], 4), ([[2, 0, 1], [1, 1, 0]], 2), ([[1, 0], [2, 1]], 3)]
)
def test_sums_of_products_cost_exactly_what_is_charged(
    table, upper, ratio, counts_of, contributions_of, bound_of
):
    bound, counts = bound_of(upper), counts_of(table)
    calibrated = noise((MEAN, VARIANCE), counts, bound, ratio=ratio)
    lost = audited_losses(table, upper, calibrated, contributions_of, bound)
    charged = claimed(calibrated)
    assert np.all(lost <= charged + 1e-13)
    np.testing.assert_allclose(lost, charged, atol=CHARGE_STEP / PICO + 1e-10)
    # and from ratio 1 on nothing more than the means
    alone = claimed(noise((MEAN,), counts, bound))
    assert ratio < 1 or np.array_equal(alone, charged)
    assert ratio > 0.2 or np.all(charged > alone)


def test_floored_sums_of_products_cost_what_is_charged_or_less(counts_of, contributions_of, bound_of):
    table, bound = [[1, 2]], bound_of(4)
    counts = counts_of(table)
    calibrated = noise((MEAN, VARIANCE), counts, bound, shift=-1)
    lost = audited_losses(table, 4, calibrated, contributions_of, bound)
    charged = claimed(calibrated)
    assert np.all(lost <= charged + 1e-13)
    assert np.all(lost >= charged / 3)


@pytest.mark.parametrize("statistics", [(MEAN,), (VARIANCE,), (VEHICLE_MEAN,), (MEAN, VARIANCE)])
def test_half_the_noise_is_caught(statistics, counts_of, contributions_of, bound_of):
    table, bound = CITIES["two bins"], bound_of(2)
    counts = counts_of(table)
    drawn = noise(statistics, counts, bound, factor=0.5)
    lost = audited_losses(table, 2, drawn, contributions_of, bound)
    assert np.all(lost > claimed(noise(statistics, counts, bound)) * 1.9)


def test_sums_of_products_with_too_little_noise_or_unpaid_are_caught(counts_of, contributions_of, bound_of):
    table, bound = [[1, 2]], bound_of(4)
    counts = counts_of(table)
    lost = audited_losses(
        table, 4, noise((MEAN, VARIANCE), counts, bound, ratio=0.5), contributions_of, bound
    )
    for other in (noise((MEAN, VARIANCE), counts, bound, ratio=1.0), noise((MEAN,), counts, bound)):
        assert np.all(lost > claimed(other) * 1.1)


def test_an_epsilon_a_bin_that_is_not_composed_is_caught(counts_of, contributions_of, bound_of):
    table, bound = CITIES["two bins"], bound_of(2)
    counts = counts_of(table)
    calibrated = noise((MEAN,), counts, bound)
    a_bin = [
        claimed(
            CalibratedLaplace(
                PublicFacts(counts.select(np.arange(2) == g), bound),
                (MEAN,),
                {MEAN: calibrated.scale[MEAN][g : g + 1]},
                np.zeros(1, dtype=np.int64),
            )
        )
        for g in range(2)
    ]
    lost = audited_losses(table, 2, calibrated, contributions_of, bound)
    assert np.all(lost > np.maximum(*a_bin) * 1.15)


def test_the_law_of_the_audit_is_a_probability():
    window = np.arange(-4_000, 4_001)
    for scale in (0.1, 1.0, 20.0):
        assert np.exp(log_law(scale, 5, window)).sum() == pytest.approx(1, abs=1e-12)
        assert log_ratio(scale, 0, 9) == pytest.approx(9 / scale, rel=1e-12)
