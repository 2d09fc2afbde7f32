"""Partial pooling and the flat map: what is paid, what leaks, and that the map is nearer than one number."""

import itertools
from dataclasses import replace

import h3.api.numpy_int as h3
import numpy as np
import pytest

from trafficdp.binning.cells import parents_of
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import GRAINS
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.mechanisms.pooling import design, estimates
from trafficdp.mechanisms.pooling.add_remove_calibrated import CalibratedAddRemove
from trafficdp.mechanisms.pooling.calibrated import CalibratedCityWide, CalibratedPooling
from trafficdp.mechanisms.pooling.design import Design
from trafficdp.mechanisms.pooling.estimates import city_wide_error, expected_map_error, pooled_estimates
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.mechanisms.simulated_cities import simulated_cities_of, skills_of, true_statistic
from trafficdp.model import Counts, Knowledge, KnowledgeKind, KnownSpeeds, NeighbouringRelation, Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.pricing import check_steps
from trafficdp.privacy.loss import CHARGE_STEP, PICO, LossKind, PureDP
from trafficdp.sensitive import Contributions, SensitiveInputs

MEAN, VARIANCE, VEHICLES = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
BOTH = (MEAN, VARIANCE)
ASKED = [(MEAN,), BOTH, (VEHICLES,), (MEAN, VEHICLES), (VARIANCE, VEHICLES), (MEAN, VARIANCE, VEHICLES)]


def hexagons(cells):
    """``cells`` hexagons of resolution 8, seven below each of resolution 7, seven of these below one of 6."""
    above = h3.cell_to_children(h3.latlng_to_cell(30.27, -97.74, 5), 8)
    return np.sort(np.array(above[:cells], dtype=np.uint64))


def town(bound, *, users=60, cells=12, slots=1, seed=0, extreme=False):
    """A random town: each vehicle in some bins, speeds by cell, or all 0 and U."""
    rng = np.random.default_rng(seed)
    bins = cells * slots
    on = rng.random((bins, users)) < 0.3
    on[:, 0] = True
    user = np.nonzero(on)[1]
    count = rng.choice([1, 2, 5, 40], len(user))
    counts = Counts(
        np.repeat(hexagons(cells), slots),
        np.tile(np.arange(slots), cells),
        np.count_nonzero(on, axis=1),
        user.astype(np.int64),
        count.astype(np.int64),
        users,
    )
    level = rng.normal(0.25, 0.1, cells).clip(0.05, 0.9)[counts.bin_index // slots]
    share = rng.choice([0.0, 1.0], len(user)) if extreme else level
    value = np.rint(share * bound.upper_steps).astype(np.int64)
    return Contributions(counts, count * value, count * value**2, np.arange(users), bound)


def values_of(contributions):
    return SensitiveInputs(contributions, lambda: None)


@pytest.mark.parametrize(
    ("make", "kind", "statistics"),
    [
        (make, kind, statistics)
        for make in (CalibratedPooling, CalibratedCityWide)
        for kind in LossKind
        for statistics in ASKED
        # a flat variance has no price in rho
        if make is CalibratedPooling or kind is LossKind.PURE or VARIANCE not in statistics
    ],
)
@pytest.mark.parametrize(("cells", "slots"), [(12, 1), (12, 3), (60, 1), (2, 4)])
def test_no_vehicle_is_metered_beyond_its_charge_nor_charged_beyond_the_total(
    bound_of, kind, statistics, make, cells, slots
):
    """Of cells alone, of thin cells after coarser ones, and of thick bins after their cells."""
    bound = bound_of(30, step="0.1")
    for seed in range(4):
        data = town(bound, cells=cells, seed=seed, slots=slots, extreme=seed % 2 == 1)
        calibrated = make(PublicFacts(data.counts, bound), statistics, kind, 2 * PICO)
        steps = calibrated.steps()
        charge = calibrated.event().loss_per_user
        check_steps(steps, charge)
        assert 2 * PICO - CHARGE_STEP <= int(charge.max()) <= 2 * PICO
        metered = PrivacyMeter(SecureNoise(), charge, kind)
        found = calibrated.run(values_of(data), metered, interval_level=0.95)
        assert np.all(metered.spent <= charge)
        # the charge takes the city for slow; vectors of vehicles that weigh the same are short elsewhere
        assert int(metered.spent.max()) > (0.8 if VEHICLES in statistics else 1.5) * PICO
        for each in statistics:
            estimate = found[each]
            assert np.all((estimate.low <= estimate.value) & (estimate.value <= estimate.high))
            assert np.all((estimate.value >= 0) & (estimate.value <= each.largest(bound.upper)))


@pytest.mark.parametrize("kind", list(LossKind))
def test_cells_are_told_apart_where_there_is_budget(bound_of, kind):
    bound = bound_of(30, step="0.1")
    data = town(bound, users=300, cells=25)
    counts = data.counts
    truth = np.bincount(counts.bin_index, data.total, counts.bins) / counts.samples_per_bin * 0.1
    design = Design(counts, bound, kind, 8 * PICO, (MEAN,))
    found = [pooled_estimates(design, data, SimulatedNoise(s)).means[MEAN] for s in range(8)]
    flat = np.abs(truth.mean() - truth).mean()
    assert np.mean([np.abs(each.value - truth).mean() for each in found]) < 0.6 * flat
    ends = [each.ends[0.95] for each in found]
    assert np.mean([(low <= truth) & (truth <= high) for low, high in ends]) > 0.95


def test_the_weights_are_what_they_say(bound_of):
    bound = bound_of(30, step="0.1")
    design = Design(town(bound).counts, bound, LossKind.PURE, PICO, (MEAN,))
    np.testing.assert_allclose(design.bin_weights.sum(axis=1), 1)
    weight = np.bincount(design.counts.bin_index, design.bin_weights.data, design.counts.bins)
    gram = (design.covariates * weight[:, None]).T @ design.covariates
    np.testing.assert_allclose(gram, np.eye(2) * design.vehicles, atol=1e-6 * design.vehicles)
    assert sum((*design.parts[:3], *design.parts.vehicles, *design.parts.variance)) == PICO


def test_what_a_weight_gains_is_the_fall_of_the_error_left(bound_of):
    """The derivative by differences: posterior sd of every cell, given noise and records' spread."""
    bound = bound_of(30, step="0.1")
    cells = Design(town(bound).counts, bound, LossKind.PURE, PICO, (MEAN,)).cells
    place, many = cells.support.coordinate, cells.size
    rng = np.random.default_rng(3)
    weight, noise, spread = rng.uniform(0.1, 1, len(place)), 0.4, 5.0
    bins, records = rng.uniform(1, 9, many), rng.uniform(100, 200, len(place))
    whole = np.bincount(place, records, many)

    def left(weights):
        total = np.bincount(place, weights, many)
        own = np.bincount(place, weights**2 * spread / records, many)
        error = (noise + own) / total**2 - spread / whole
        return float(bins @ np.sqrt(cells.cell_sd**2 * error / (cells.cell_sd**2 + error)))

    nudges = 1e-5 * np.eye(len(weight))
    fall = [(left(weight - nudge) - left(weight + nudge)) / 2e-5 for nudge in nudges]
    np.testing.assert_allclose(cells._gain(weight, records, noise, bins, spread), fall, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("kind", list(LossKind))
def test_a_mean_over_vehicles_weighs_every_vehicle_the_same(bound_of, kind):
    """In every bin the vehicles that report forty times are slow: the two means lie far apart."""
    bound = bound_of(30, step="0.1")
    data = town(bound, users=300, cells=25)
    counts = data.counts
    value = np.where(counts.count == 40, 20, 200)
    data = Contributions(counts, counts.count * value, counts.count * value**2, np.arange(300), bound)
    truths = {each: true_statistic(data, each) for each in (MEAN, VEHICLES)}
    assert np.abs(truths[MEAN] - truths[VEHICLES]).mean() > 6
    for statistics in ((VEHICLES,), (MEAN, VEHICLES)):
        design = Design(counts, bound, kind, 200 * PICO, statistics)
        found = pooled_estimates(design, data, SimulatedNoise(1))
        assert set(found.means) == set(statistics)
        for each, own in found.means.items():
            assert np.abs(own.value - truths[each]).mean() < 1.5
        np.testing.assert_array_equal(design.for_vehicle_means.cells.weights.records, 1)
        np.testing.assert_allclose(design.for_vehicle_means.bin_weights.sum(axis=1), 1)


def test_a_mean_over_vehicles_costs_the_map_of_means_a_small_share(bound_of):
    bound = bound_of(30, step="0.1")
    counts = town(bound).counts

    def parts(total, *statistics):
        design = Design(counts, bound, LossKind.PURE, total, statistics)
        parts = [sum(design.parts[:3]), sum(design.parts.vehicles), sum(design.parts.variance)]
        assert sum(parts) == total
        return design, parts

    for total, share in ((PICO, 0.1), (50 * PICO, 0.25)):
        thin, own = parts(total, VEHICLES)
        assert thin.thick == (share > 0.1)
        assert own == pytest.approx([total * (1 - share), total * share, 0], abs=2)
        assert parts(total, MEAN, VEHICLES)[1] == own
        whole = 0.7 * total
        assert parts(total, *BOTH, VEHICLES)[1] == pytest.approx(
            [whole * (1 - share), whole * share, 0.3 * total], abs=2
        )
        assert parts(total, *BOTH)[1] == pytest.approx([whole, 0, 0.3 * total], abs=2)


@pytest.mark.parametrize("kind", list(LossKind))
def test_vehicles_that_all_drive_faster_than_their_records_say_are_found_out(bound_of, kind):
    """The distance between the two means is the same in every hexagon: one number tells it."""
    bound = bound_of(30, step="0.1")
    counts = town(bound, users=300, cells=100).counts
    value = np.where(counts.count == 40, 60, 80)
    data = Contributions(counts, counts.count * value, counts.count * value**2, np.arange(300), bound)
    total = {LossKind.PURE: 3.9, LossKind.ZCDP: 0.35}[kind]
    design = Design(counts, bound, kind, int(total * PICO), (MEAN, VEHICLES))
    assert not design.thick
    found = [pooled_estimates(design, data, SimulatedNoise(seed)).means for seed in range(8)]
    apart = np.mean([(each[VEHICLES].value - each[MEAN].value).mean() for each in found])
    truth = (true_statistic(data, VEHICLES) - true_statistic(data, MEAN)).mean()
    assert truth > 1
    # drawn towards none
    assert 0.3 * truth < apart < 1.2 * truth


def test_where_cells_are_thin_the_finest_hexagons_above_them_that_are_not_come_first(bound_of):
    bound = bound_of(30, step="0.1")
    counts = town(bound, users=100, cells=98).counts

    def found(epsilon, of=counts):
        design = Design(of, bound, LossKind.PURE, int(epsilon * PICO), (MEAN,))
        assert sum(each.part for each in design.levels) == design.parts.cells
        return design.levels

    (alone,) = found(6)
    assert (alone.size, alone.guessed) == (98, 1)
    for epsilon, above, resolution in ((5.8, 14, 7), (0.9, 14, 7), (0.8, 2, 6), (0.01, 2, 6)):
        first, second = found(epsilon)
        assert (first.size, second.size) == (above, 98)
        assert first.part == pytest.approx(0.3 * (first.part + second.part), abs=2)
        np.testing.assert_array_equal(
            first.places.cell[first.places.of_bin], parents_of(counts.cell, resolution)
        )
        np.testing.assert_allclose(first.strength * above, second.strength * 98)
        # a vehicle's records in a coarser hexagon are those in its cells
        own = np.zeros((counts.users, above))
        np.add.at(own, (counts.user_index, first.places.of_bin[counts.bin_index]), counts.count)
        np.testing.assert_array_equal(
            own[first.support.user, first.support.coordinate], first.weights.records
        )
        np.testing.assert_allclose(second.cell_sd, alone.cell_sd / 2**0.5)
        assert second.clip_bounds[0] == pytest.approx(1.2 / 2**0.5)
    # zones have nothing above them, and one hexagon above all cells is the city
    zones = replace(counts, cell=np.arange(98, dtype=np.uint64) + 1)
    family = town(bound, users=10, cells=7).counts
    assert [len(found(0.1, of)) for of in (zones, family)] == [1, 1]


def test_where_bins_are_thick_they_come_after_their_cells(bound_of):
    bound = bound_of(30, step="0.1")
    counts = town(bound, users=100, cells=10, slots=4).counts
    for epsilon, many in ((4.7, 1), (4.9, 2)):
        levels = Design(counts, bound, LossKind.PURE, int(epsilon * PICO), (MEAN,)).levels
        assert [each.size for each in levels] == [10, 40][:many]
    _, bins = levels
    np.testing.assert_array_equal(bins.places.of_bin, np.arange(40))
    np.testing.assert_array_equal(bins.weights.records, counts.count)
    whole = town(bound, users=100, cells=10).counts
    assert len(Design(whole, bound, LossKind.PURE, 9 * PICO, (MEAN,)).levels) == 1


@pytest.mark.parametrize("kind", list(LossKind))
def test_hours_of_a_cell_are_told_apart_where_bins_are_thick(bound_of, kind):
    """In every cell one hour is slow: cells alone say nothing of it."""
    bound = bound_of(30, step="0.1")
    counts = town(bound, users=1000, cells=10, slots=4).counts
    truth = np.where(counts.slot == np.arange(40) // 4 % 4, 30, 90)
    value = truth[counts.bin_index]
    data = Contributions(counts, counts.count * value, counts.count * value**2, np.arange(1000), bound)
    design = Design(counts, bound, kind, 4 * PICO, (MEAN,))
    assert [each.size for each in design.levels] == [10, 40]
    found = pooled_estimates(design, data, SimulatedNoise(1)).means[MEAN].value
    # the mean of every cell is off by 2.25
    assert np.abs(found - truth / 10).mean() < 0.6


@pytest.mark.parametrize("kind", list(LossKind))
def test_thin_cells_lean_on_the_hexagons_above_them(bound_of, kind, monkeypatch):
    """Half of the town is fast, cell by cell as the one above: two levels find it, cells alone do not."""
    bound = bound_of(30, step="0.1")
    counts = town(bound, users=200, cells=98).counts
    truth = np.where(np.arange(98) < 49, 50, 80)
    value = truth[counts.bin_index]
    data = Contributions(counts, counts.count * value, counts.count * value**2, np.arange(200), bound)
    total = {LossKind.PURE: 2.0, LossKind.ZCDP: 0.06}[kind]

    def off():
        design = Design(counts, bound, kind, int(total * PICO), (MEAN,))
        drawn = [pooled_estimates(design, data, SimulatedNoise(seed)).means[MEAN].value for seed in range(12)]
        return len(design.levels), np.mean(np.abs(np.stack(drawn) - truth / 10))

    many, near = off()
    monkeypatch.setattr(design, "THIN", 0.0)
    alone, far = off()
    assert (many, alone) == (2, 1)
    assert near < 0.75 * far


def test_more_budget_is_expected_to_help_and_more_than_one_number(bound_of):
    bound = bound_of(30, step="0.1")
    counts = town(bound, users=300, cells=25).counts
    errors = [
        np.sqrt(2 / np.pi)
        * expected_map_error(Design(counts, bound, LossKind.PURE, int(e * PICO), (MEAN,))).mean()
        for e in (0.5, 2, 8, 32)
    ]
    assert all(more > less for more, less in itertools.pairwise(errors))
    assert errors[-1] < city_wide_error(Design(counts, bound, LossKind.PURE, PICO, (MEAN,))).mean()


def test_facts_come_back(bound_of):
    for make in (CalibratedPooling, CalibratedCityWide):
        public = PublicFacts(town(bound_of(30)).counts, bound_of(30))
        one = make(public, BOTH, LossKind.PURE, 3 * PICO)
        assert make.from_facts(one.to_facts(), public) == one
        assert make.from_published(one.manifest_facts(), {}, public) == one


def test_other_statistics_are_refused(bound_of):
    bound = bound_of(30, step="0.1")
    public = PublicFacts(town(bound).counts, bound)
    with pytest.raises(UsageError, match="cannot estimate"):
        CalibratedPooling(public, (Statistic.VEHICLE_MEDIAN,), LossKind.PURE, PICO).steps()
    nothing = PublicFacts(town(bound).counts.select(np.zeros(12, dtype=np.bool_)), bound)
    with pytest.raises(UsageError, match="nothing to pool"):
        CalibratedPooling(nothing, (MEAN,), LossKind.PURE, PICO).steps()


@pytest.mark.parametrize("statistics", [BOTH, (VEHICLES,)])
def test_intervals_reach_as_far_as_was_foreseen_and_hold_in_simulated_cities(bound_of, statistics):
    bound = bound_of(108, step="0.1")  # km/h: simulated cities lie near a fifth of it
    counts = town(bound, users=300, cells=25).counts
    calibrated = CalibratedPooling(PublicFacts(counts, bound), statistics, LossKind.PURE, 8 * PICO)
    foreseen = calibrated.half_widths(0.95)
    held, longer = {each: [] for each in statistics}, {each: [] for each in statistics}
    for city in simulated_cities_of(counts, bound):
        found = calibrated.run(city.values, SimulatedNoise(city.number), interval_level=0.95)
        for each, own in found.items():
            truth = true_statistic(city.values.contributions, each)
            held[each].append(np.mean((own.low <= truth) & (truth <= own.high)))
            longer[each].append(np.median(own.high - own.low) / 2 / np.median(foreseen[each]))
    for each in statistics:
        assert np.mean(held[each]) > (0.93 if each is VARIANCE else 0.95)
        # records of these cities differ less than is guessed, and speeds found may be twice the usual ones
        assert 0.2 < np.median(longer[each]) < 1.5
        assert foreseen[each].max() < each.largest(bound.upper) / 2


def test_intervals_hold_for_hours_of_a_large_fleet(bound_of):
    """Hours differ however many vehicles a cell has, and cells alone are asked for."""
    bound = bound_of(108, step="0.1")
    counts = town(bound, users=1500, cells=20, slots=24).counts
    calibrated = CalibratedPooling(PublicFacts(counts, bound), (MEAN,), LossKind.PURE, 3 * PICO)
    assert len(calibrated.design.levels) == 1
    held = []
    for city in simulated_cities_of(counts, bound):
        found = calibrated.run(city.values, SimulatedNoise(city.number), interval_level=0.95)[MEAN]
        truth = true_statistic(city.values.contributions, MEAN)
        held.append(np.mean((found.low <= truth) & (truth <= found.high)))
    assert np.mean(held) > 0.95


def test_a_cell_varies_by_its_share_more_or_less_than_the_function_says(bound_of):
    bound = bound_of(60)
    data = town(bound)
    design = Design(data.counts, bound, LossKind.ZCDP, 50 * PICO, BOTH)
    assert design.thick
    mean = np.full(design.counts.bins, 20.0)

    class Said:
        def __init__(self, of_cells):
            self.of_cells = of_cells

        def measure(self, step, values):
            cells = step.of.support.coordinates > 1
            return np.full(12, self.of_cells) if cells else SimulatedNoise(1).measure(step, values)

    def found(of_cells):
        return estimates._variance(design, data, mean, 0.25, 1.0, Said(of_cells)).value

    usual = found(0.0)
    assert usual.min() > 0
    once, twice = (found(answer) / usual - 1 for answer in (1e3, 2e3))
    assert once.min() > 0
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-9)
    # by nine tenths less at most
    np.testing.assert_allclose(found(-1e15), usual / 10, rtol=1e-12)


def test_rounds_in_rho_ask_within_narrower_bounds_and_count_by_their_noise(bound_of):
    """T, 0.7 T, ... of four rounds at the same loss; their mean of least variance has that variance."""
    bound = bound_of(30, step="0.1")
    data = town(bound, users=300, cells=20)
    design = Design(data.counts, bound, LossKind.ZCDP, PICO, (MEAN,))
    (cells,) = design.levels
    asked = []

    class Noted:
        def measure(self, step, values):
            asked.append(step)
            return SimulatedNoise(1).measure(step, values)

    pooled_estimates(design, data, Noted())

    def of_cells(steps):
        return [step for step in steps if step.of.support.coordinates == cells.size]

    rounds = of_cells(asked)
    bounds = cells.clip_bounds[0] * 0.7 ** np.arange(4)
    np.testing.assert_allclose([step.of.bound for step in rounds], bounds)
    np.testing.assert_allclose([step.of.bound for step in of_cells(design.most_expensive_steps())], bounds)
    # noise is so many grains in every round, and grains are a bound's
    noise = [step.law.sd[0] * step.of.bound / GRAINS for step in rounds]
    base, x = np.full(data.counts.bins, 6.0), data.total * float(bound.step) / data.counts.count
    _, (told,) = estimates._levels(design, x, base, 1.0, SimulatedNoise(1))
    together = np.sqrt(told.noise) * cells.weights.place
    np.testing.assert_allclose(together, np.sum(np.power(noise, -2)) ** -0.5)
    assert together.max() < cells.noise_sd(cells.part, cells.clip_bounds[0]) / 1.5
    one = Design(data.counts, bound, LossKind.PURE, PICO, (MEAN,))
    _, (told,) = estimates._levels(one, x, base, 1.0, SimulatedNoise(1))
    (level,) = one.levels
    assert len(of_cells(one.most_expensive_steps())) == len(told.rounds) == 1
    together = np.sqrt(told.noise) * level.weights.place
    np.testing.assert_allclose(together, level.noise_sd(level.part, level.clip_bounds[0]))


def known(speed):
    """What one source says of every bin."""
    source = Knowledge(kind=KnowledgeKind.RELEASE, name="r0001", sha256="0" * 64, share=0.6)
    return KnownSpeeds((source,), np.atleast_2d(np.asarray(speed, dtype=np.float64)))


@pytest.mark.parametrize("kind", list(LossKind))
@pytest.mark.parametrize("slots", [1, 3])
def test_what_is_right_makes_maps_better_and_charges_no_more(bound_of, kind, slots):
    data = town(bound_of(30, step="0.1"), cells=40, slots=slots)
    truth = true_statistic(data, MEAN)
    without_ = CalibratedPooling(PublicFacts(data.counts, data.bound), (MEAN,), kind, PICO // 2)
    with_ = replace(without_, public=replace(without_.public, known=known(truth * 3.6)))
    assert with_.event().loss == without_.event().loss
    error = [
        np.mean(
            [
                np.abs(each.run(values_of(data), SimulatedNoise(s), interval_level=0.95)[MEAN].value - truth)
                for s in range(6)
            ]
        )
        for each in (without_, with_)
    ]
    assert error[1] < 0.9 * error[0]


def test_simulated_cities_know_nothing(bound_of):
    data = town(bound_of(30, step="0.1"), cells=12)
    plain = CalibratedPooling(PublicFacts(data.counts, data.bound), (MEAN,), LossKind.PURE, PICO)
    informed = replace(plain, public=replace(plain.public, known=known(np.linspace(1, 20, 12))))
    one, other = (
        skills_of([each], PureDP(PICO), simulated_cities_of(data.counts, data.bound), once=True)[0][MEAN]
        for each in (plain, informed)
    )
    np.testing.assert_array_equal(one.error, other.error)


def test_what_was_known_is_written_and_read_back_from_facts_and_from_columns(bound_of):
    data = town(bound_of(30, step="0.1"), cells=12)
    public = PublicFacts(data.counts, data.bound)
    speeds = known([np.nan, *np.linspace(1, 20, 11)])
    made = CalibratedPooling(replace(public, known=speeds), (MEAN,), LossKind.PURE, PICO)
    assert made.known == speeds.sources
    assert "speed" not in str(made.manifest_facts())
    noise = made.run(values_of(data), SimulatedNoise(1), interval_level=0.95)[MEAN].noise
    for again in (
        calibrated_from_facts(made.to_facts(), public),
        calibrated_from_facts(made.manifest_facts(), public, {MEAN: noise}),
    ):
        np.testing.assert_array_equal(again.public.known.speed, speeds.speed)
        assert again.to_facts() == made.to_facts()
    # what was planned without is read back without, whatever is public by now
    plain = made.without_known()
    assert plain.known == ()
    assert calibrated_from_facts(plain.to_facts(), made.public).public.known is None
    assert "known_1" not in plain.shared_columns()


def test_only_what_starts_from_speeds_says_so(bound_of):
    data = town(bound_of(30, step="0.1"), cells=12)
    wanted = type(
        "JointRequest",
        (),
        {"statistics": (MEAN,), "fleet": 60, "per_slot": False, "counts_percent": 0, "zone_km2": None},
    )
    public = PublicFacts(data.counts, data.bound, known=known(np.ones(12)))
    assert CalibratedCityWide.calibrate(public, PureDP(PICO), wanted).known == ()
    assert CalibratedPooling.calibrate(public, PureDP(PICO), wanted).known == (known(1).sources[0],)
    anyone = Counts.for_declared_grid(data.counts.cells, np.zeros(12, dtype=np.int64))
    hidden = PublicFacts(anyone, data.bound, NeighbouringRelation.ADD_OR_REMOVE_USER, known(np.ones(12)))
    assert CalibratedAddRemove.calibrate(hidden, PureDP(PICO), wanted).known == (known(1).sources[0],)
