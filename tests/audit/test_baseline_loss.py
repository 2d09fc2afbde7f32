"""An exact audit: every data set, every neighbour, every outcome of tiny cities. Nothing is sampled.

The probabilities of discrete Laplace noise are geometric series, so the largest log-ratio of an outcome's
probability between neighbours is computed, not estimated, and compared with what is charged. Coordinates
of an outcome have independent noise: the largest log-ratio is the sum of each coordinate's largest.
"""

from itertools import product

import numpy as np
import pytest

from trafficdp.mechanisms.laplace.baseline import exact_integer
from trafficdp.mechanisms.laplace.lattice import Lattice, loss_per_user
from trafficdp.mechanisms.mean_variance.lattice import exact_products, moments_loss_per_user
from trafficdp.model.statistic import Statistic
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
SCALES = {MEAN: [3.0, 7.5], VARIANCE: [20.0, 11.0], VEHICLE_MEAN: [2.5, 4.0]}


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


def audited_losses(table, upper, lattices, contributions_of, bound, integer=exact_integer):
    """Every vehicle's exact privacy loss: the largest log-ratio over its neighbours and all outcomes."""
    centres = {}
    for key, values in data_sets(table, upper):
        city = contributions_of(values, bound)
        centres[key] = tuple(
            int(centre)
            for s, lattice in lattices.items()
            for centre in integer(s, city) // lattice.spacing.astype(object)
        )
    scales = [float(scale) for lattice in lattices.values() for scale in lattice.scale]
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


def noise(statistics, counts, factor=1.0, spacing=1):
    lattices = {}
    for s in statistics:
        scale = np.array(SCALES[s][: counts.bins]) * factor
        if s is VARIANCE:
            scale = np.where(counts.samples_per_bin == 1, 0.0, scale)
        lattices[s] = Lattice(scale, np.full(counts.bins, spacing, dtype=np.int64))
    return lattices


@pytest.mark.parametrize("statistics", [(MEAN,), (VARIANCE,), (MEAN, VARIANCE)])
@pytest.mark.parametrize("name", CITIES)
def test_what_is_charged_is_exactly_what_is_lost(name, statistics, counts_of, contributions_of, bound_of):
    table, bound = CITIES[name], bound_of(2)
    counts = counts_of(table)
    lattices = noise(statistics, counts)
    claimed = loss_per_user(counts, bound, lattices) / PICO
    lost = audited_losses(table, 2, lattices, contributions_of, bound)
    assert np.all(lost <= claimed + 1e-13)
    np.testing.assert_allclose(lost, claimed, atol=CHARGE_STEP / PICO + 1e-10)


@pytest.mark.parametrize("statistics", [(VEHICLE_MEAN,), (MEAN, VEHICLE_MEAN), tuple(Statistic)])
@pytest.mark.parametrize("name", CITIES)
def test_vehicle_means_cost_what_is_charged_or_less(name, statistics, counts_of, contributions_of, bound_of):
    table, bound = CITIES[name], bound_of(2)
    counts = counts_of(table)
    lattices = noise(statistics, counts)
    claimed = loss_per_user(counts, bound, lattices) / PICO
    lost = audited_losses(table, 2, lattices, contributions_of, bound)
    assert np.all(lost <= claimed + 1e-13)
    if VARIANCE not in statistics:
        np.testing.assert_allclose(lost, claimed, atol=CHARGE_STEP / PICO + 1e-10)


@pytest.mark.parametrize("spacing", [2, 3, 8])
@pytest.mark.parametrize("name", ["two vehicles, one bin", "a dominating vehicle", "two bins"])
def test_a_coarser_lattice_costs_what_is_charged_or_less(
    name, spacing, counts_of, contributions_of, bound_of
):
    table, bound = CITIES[name], bound_of(2)
    counts = counts_of(table)
    lattices = noise((VARIANCE,), counts, spacing=spacing)
    claimed = loss_per_user(counts, bound, lattices) / PICO
    lost = audited_losses(table, 2, lattices, contributions_of, bound)
    assert np.all(lost <= claimed + 1e-13)
    assert np.all(lost >= claimed / 3)


def test_larger_speeds_are_audited_too(counts_of, contributions_of, bound_of):
    table, bound = [[1, 3]], bound_of(4)
    counts = counts_of(table)
    lattices = noise((MEAN, VARIANCE), counts)
    lost = audited_losses(table, 4, lattices, contributions_of, bound)
    np.testing.assert_allclose(lost, loss_per_user(counts, bound, lattices) / PICO, atol=2e-9)


def moment(statistic, city):
    return exact_products(city) if statistic is VARIANCE else exact_integer(statistic, city)


@pytest.mark.parametrize("ratio", [0.2, 0.5652, 0.8, 1.0, 3.0])
@pytest.mark.parametrize(
    ("table", "upper"), [([[1, 2]], 4), ([[2, 0, 1], [1, 1, 0]], 2), ([[1, 0], [2, 1]], 3)]
)
def test_sums_of_products_cost_exactly_what_is_charged(
    table, upper, ratio, counts_of, contributions_of, bound_of
):
    bound, counts = bound_of(upper), counts_of(table)
    lattices = noise((MEAN, VARIANCE), counts)
    scale = np.where(counts.samples_per_bin > 1, ratio * upper * lattices[MEAN].scale, 0.0)
    lattices[VARIANCE] = Lattice(scale, lattices[VARIANCE].spacing)
    claimed = moments_loss_per_user(counts, bound, lattices) / PICO
    lost = audited_losses(table, upper, lattices, contributions_of, bound, moment)
    assert np.all(lost <= claimed + 1e-13)
    np.testing.assert_allclose(lost, claimed, atol=CHARGE_STEP / PICO + 1e-10)
    # and from ratio 1 on nothing more than the means
    alone = loss_per_user(counts, bound, {MEAN: lattices[MEAN]}) / PICO
    assert ratio < 1 or np.array_equal(alone, claimed)
    assert ratio > 0.2 or np.all(claimed > alone)


@pytest.mark.parametrize("spacing", [2, 3])
def test_floored_sums_of_products_cost_what_is_charged_or_less(
    spacing, counts_of, contributions_of, bound_of
):
    table, bound = [[1, 2]], bound_of(4)
    counts = counts_of(table)
    lattices = noise((MEAN, VARIANCE), counts)
    lattices[VARIANCE] = Lattice(np.array([1.6]), np.array([spacing]))
    claimed = moments_loss_per_user(counts, bound, lattices) / PICO
    lost = audited_losses(table, 4, lattices, contributions_of, bound, moment)
    assert np.all(lost <= claimed + 1e-13)
    assert np.all(lost >= claimed / 3)


def test_sums_of_products_with_too_little_noise_are_caught(counts_of, contributions_of, bound_of):
    table, bound = [[1, 2]], bound_of(4)
    counts = counts_of(table)
    lattices = noise((MEAN, VARIANCE), counts)
    lattices[VARIANCE] = Lattice(lattices[MEAN].scale * 4, lattices[VARIANCE].spacing)
    claimed = moments_loss_per_user(counts, bound, lattices) / PICO
    drawn = {MEAN: lattices[MEAN], VARIANCE: Lattice(lattices[MEAN].scale * 2, lattices[VARIANCE].spacing)}
    assert np.all(audited_losses(table, 4, drawn, contributions_of, bound, moment) > claimed * 1.1)


@pytest.mark.parametrize("statistics", [(MEAN,), (VARIANCE,), (VEHICLE_MEAN,), (MEAN, VARIANCE)])
def test_half_the_noise_is_caught(statistics, counts_of, contributions_of, bound_of):
    table, bound = CITIES["two bins"], bound_of(2)
    counts = counts_of(table)
    claimed = loss_per_user(counts, bound, noise(statistics, counts)) / PICO
    drawn = noise(statistics, counts, factor=0.5)
    lost = audited_losses(table, 2, drawn, contributions_of, bound)
    assert np.all(lost > claimed * 1.9)


def test_a_variance_that_nobody_paid_for_is_caught(counts_of, contributions_of, bound_of):
    table, bound = CITIES["two vehicles, one bin"], bound_of(2)
    counts = counts_of(table)
    both = noise((MEAN, VARIANCE), counts)
    claimed = loss_per_user(counts, bound, {MEAN: both[MEAN]}) / PICO
    assert np.all(audited_losses(table, 2, both, contributions_of, bound) > claimed * 1.1)


def test_a_variance_priced_by_n_instead_of_k_times_n_minus_k_is_caught(counts_of, contributions_of, bound_of):
    table, bound = CITIES["two vehicles, one bin"], bound_of(2)
    counts = counts_of(table)
    lattices = noise((VARIANCE,), counts)
    wrong = bound.steps**2 * counts.samples_per_bin[0] / lattices[VARIANCE].scale[0]
    assert np.all(audited_losses(table, 2, lattices, contributions_of, bound) > wrong * 1.1)


def test_an_epsilon_a_bin_that_is_not_composed_is_caught(counts_of, contributions_of, bound_of):
    table, bound = CITIES["two bins"], bound_of(2)
    counts = counts_of(table)
    lattices = noise((MEAN,), counts)
    a_bin = [
        loss_per_user(
            counts.select(np.arange(2) == g),
            bound,
            {MEAN: Lattice(lattices[MEAN].scale[g : g + 1], lattices[MEAN].spacing[g : g + 1])},
        )
        for g in range(2)
    ]
    uncomposed = np.maximum(*a_bin) / PICO
    assert np.all(audited_losses(table, 2, lattices, contributions_of, bound) > uncomposed * 1.15)


def test_a_noiseless_variance_that_can_vary_is_caught(counts_of, contributions_of, bound_of):
    table, bound = [[2, 1]], bound_of(1)
    silent = {VARIANCE: Lattice(np.array([0.0]), np.ones(1, dtype=np.int64))}
    with pytest.raises(AssertionError, match="without noise depends on values"):
        audited_losses(table, 1, silent, contributions_of, bound)


def test_the_law_of_the_audit_is_a_probability():
    window = np.arange(-4_000, 4_001)
    for scale in (0.1, 1.0, 20.0):
        assert np.exp(log_law(scale, 5, window)).sum() == pytest.approx(1, abs=1e-12)
        assert log_ratio(scale, 0, 9) == pytest.approx(9 / scale, rel=1e-12)
