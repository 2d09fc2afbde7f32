"""Intervals hold at once as often as they say: the mechanisms' own noise, simulated, on a known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trafficdp.export.report.certainty import (
    BlockLaw,
    LatticeLaw,
    MomentBlockLaw,
    MomentsLaw,
    average_half_width,
    difference_half_width,
    law_of,
    mean_with_interval,
    simultaneous_intervals,
    unclamped_bounds,
)
from trafficdp.export.report.change import _root, changes
from trafficdp.export.report.findings import changed_rows, findings, proven_order
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.blocks.noise import BlockNoise
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace, LaplaceNoise
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.pooling.calibrated import CalibratedPooling
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.simulated_cities import ReferenceCityShape, simulated_cities_of, true_statistic
from trafficdp.mechanisms.simulated_cities import _cities as reference_cities
from trafficdp.model import Counts, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.loss import PICO, LossKind, PureDP
from trafficdp.privacy.release import outward_down, outward_up
from trafficdp.sensitive import SensitiveInputs
from trafficdp.simulation.city import VARIATIONS

pytestmark = pytest.mark.slow

BINS, RUNS, ERROR = 8, 100, 0.2
MOST = ERROR * RUNS + 4 * np.sqrt(RUNS * ERROR * (1 - ERROR))
"""Misses of events of probability ERROR in RUNS runs, four standard deviations up."""
BOTH = (Statistic.MEAN, Statistic.VARIANCE)
MEAN, VARIANCE = BOTH


@pytest.fixture(scope="module")
def world(contributions_of, bound_of, make_release):
    """Draws releases of one city whose truth is known: bins near 0, in the middle and near the bound."""
    return _World(contributions_of, bound_of("60"), make_release)


class _World:
    def __init__(self, contributions_of, bound, make_release):
        import h3

        self.bound = bound
        cells = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 7), 2)[:BINS]
        base = make_release(cells, statistics=BOTH)
        self.base = replace(base, request=replace(base.request, bound=bound, interval_level=1 - ERROR))
        self.rest = np.random.default_rng(7)
        centres = [1, 2, 10, 25, 26, 40, 58, 60]
        self.values = [
            [[int(np.clip(c + self.rest.integers(-2, 3), 0, 60)) for _ in range(4)] for _ in range(6)]
            for c in centres
        ]
        self.contributions = contributions_of(self.values, bound)
        shifted = [[[min(60, speed + 9 * (place == 2)) for speed in user] for user in users]
                   for place, users in enumerate(self.values)]  # fmt: skip
        self.later = contributions_of(shifted, bound)

    def truth(self, contributions, statistic):
        """As a report shows it: of variances the root."""
        return true_statistic(contributions, statistic) ** (1 / statistic.power)

    def laplace_release(self, noise, contributions, scale=1.0, name="R0001"):
        counts, ones = contributions.counts, np.ones(BINS)
        scales = np.linspace(scale, 2 * scale, BINS)
        drawn = CalibratedLaplace.of(LaplaceNoise(counts, self.bound, BOTH, scales, 0.6 * ones, 0 * ones))
        estimates = drawn.run(SensitiveInputs(contributions, lambda: None), noise, interval_level=1 - ERROR)
        return self._release(estimates, name)

    def block_release(self, noise, contributions, scale=1.0, name="R0001"):
        # as much noise on the means as ``laplace_release`` has, or less
        drawn = BlockNoise(
            block=np.concatenate([np.arange(BINS) // 2, 4 + np.arange(BINS) // 2]),
            half_width=np.repeat([64, 60 * 40], BINS),
            shift=np.repeat([2, 2], BINS),
            scale=scale,
        )
        estimates = CalibratedBlocks(PublicFacts(contributions.counts, self.bound), BOTH, drawn).run(
            SensitiveInputs(contributions, lambda: None), noise, interval_level=1 - ERROR
        )
        return self._release(estimates, name)

    def _release(self, estimates, name):
        # whatever the numbers say, all of them are looked at
        status = np.full(BINS, BinStatus.RELEASED.value, dtype=object)
        told = {each: replace(own, status=status.copy()) for each, own in estimates.items()}
        return replace(self.base, estimates=told, status=status, id=name)


def averaged(truth, statistic):
    """The average that a report tells: of deviations, the root of the average variance."""
    return (truth**statistic.power).mean() ** (1 / statistic.power)


def _misses(found, truth):
    return bool(np.any((found.low > truth) | (truth > found.high)))


@pytest.mark.parametrize("kind", ["laplace", "block"])
@pytest.mark.parametrize("statistic", BOTH)
def test_all_intervals_hold_at_once_as_often_as_they_say(world, kind, statistic):
    noise, missed, alone = SimulatedNoise(3), 0, 0
    truth = world.truth(world.contributions, statistic)
    for _ in range(RUNS):
        draw = world.laplace_release(noise, world.contributions, 1.5) if kind == "laplace" else None
        draw = draw or world.block_release(noise, world.contributions)
        missed += _misses(simultaneous_intervals(draw, statistic, ERROR / BINS), truth)
        alone += _misses(simultaneous_intervals(draw, statistic, ERROR), truth)
    assert missed <= MOST
    # the release's own intervals, one by one, would not do
    if kind == "laplace" and statistic is MEAN:
        assert alone > MOST


@pytest.mark.parametrize("kind", ["laplace", "block"])
def test_the_average_holds_as_often_as_it_says_though_some_numbers_are_clamped(world, kind):
    noise, missed, clamped = SimulatedNoise(4), 0, 0
    truth = world.truth(world.contributions, MEAN).mean()
    for _ in range(RUNS):
        draw = world.laplace_release(noise, world.contributions, 4.0) if kind == "laplace" else None
        draw = draw or world.block_release(noise, world.contributions)
        certain = simultaneous_intervals(draw, MEAN, ERROR / 2 / BINS)
        found = mean_with_interval(draw, MEAN, certain, ERROR / 2)
        missed += not found.low <= truth <= found.high
        clamped += bool(np.any(np.isinf(unclamped_bounds(draw, MEAN, certain.rows))))
        assert found.low <= found.value <= found.high
    assert missed <= MOST
    assert clamped > RUNS / 4


def test_an_average_is_narrower_than_the_average_of_intervals(world):
    draw = world.laplace_release(SimulatedNoise(5), world.contributions, 0.1)
    certain = simultaneous_intervals(draw, MEAN, ERROR / BINS)
    inside = certain.rows[2:6]
    draw = among(draw, inside)
    certain = simultaneous_intervals(draw, MEAN, ERROR / BINS)
    found = mean_with_interval(draw, MEAN, certain, ERROR)
    assert found.high - found.low < 0.8 * float((certain.high - certain.low).mean())
    # nothing is clamped: it is the average's own half width, rounded outward
    half = average_half_width([law_of(draw, MEAN).select_bins(inside)], ERROR)
    assert 0 <= found.high - found.value - half <= 0.1
    assert 0 <= found.value - found.low - half <= 0.1


@pytest.mark.parametrize(
    ("statistic", "kinds"),
    [
        (MEAN, ("laplace", "laplace")),
        (MEAN, ("laplace", "block")),
        (VARIANCE, ("laplace", "block")),
        # in fewer runs among averages and changes of variances from products
        pytest.param(VARIANCE, ("laplace", "laplace"), marks=pytest.mark.prove),
    ],
)
def test_all_changes_hold_at_once_as_often_as_they_say(world, kinds, statistic):
    noise, missed, averages = SimulatedNoise(6), 0, 0
    truth = world.truth(world.later, statistic) - world.truth(world.contributions, statistic)
    for _ in range(RUNS):
        later = world.laplace_release(noise, world.later, 3.0, "R0002")
        if kinds[1] == "laplace":
            earlier = world.laplace_release(noise, world.contributions, 2.0)
        else:
            earlier = world.block_release(noise, world.contributions)
        found = changes(later, earlier, statistic, ERROR / BINS, 0.01)
        missed += _misses(found, truth)
        averages += not found.average.low <= truth.mean() <= found.average.high
        assert np.all((found.low <= found.value + 1e-9) & (found.value <= found.high + 1e-9))
    assert missed <= MOST
    assert averages <= MOST


def test_a_change_is_seen_once_the_noise_allows_it(world):
    noise = SimulatedNoise(8)
    later = world.laplace_release(noise, world.later, 0.15, "R0002")
    earlier = world.laplace_release(noise, world.contributions, 0.15)
    found = changes(later, earlier, MEAN, ERROR / BINS, 0.01)
    fell, rose = changed_rows(found.low, found.high)
    assert (fell.tolist(), rose.tolist()) == ([], [2])
    laws = [law_of(each, MEAN) for each in (later, earlier)]
    apart = found.high - found.value, found.value - found.low
    inside = np.s_[2:6]
    half = difference_half_width(*laws, 0.9 * ERROR / BINS)[inside]
    assert all(np.all((each[inside] - half >= 0) & (each[inside] - half <= 0.1)) for each in apart)


def test_a_change_of_clamped_numbers_and_the_average_of_others_are_as_wide_as_their_laws(world):
    noise, error = SimulatedNoise(8), 0.01
    later = among(world.laplace_release(noise, world.later, 0.15, "R0002"), range(2, 6))
    earlier = among(world.laplace_release(noise, world.contributions, 0.15), range(2, 6))
    laws = [law_of(each, MEAN).select_bins(np.arange(2, 6)) for each in (later, earlier)]
    told = changes(later, earlier, MEAN, error, error).average
    half = average_half_width(laws, error)
    assert 0 <= told.high - told.value - half <= 0.1
    assert 0 <= told.value - told.low - half <= 0.1
    # both at 0: all that is known is how far either may lie above it
    still = [clamped(each, 2) for each in (later, earlier)]
    found = changes(*still, MEAN, error, error)
    own, others = (float(each.half_width(error * 0.05)[0]) for each in laws)
    assert found.high[0] == outward_up(np.array(own), 1)
    assert found.low[0] == outward_down(np.array(-others), 1)


def among(draw, rows):
    """The release with the numbers of ``rows`` alone, and of means alone."""
    status = np.full(BINS, BinStatus.WITHHELD.value, dtype=object)
    status[list(rows)] = BinStatus.RELEASED.value
    return replace(draw, estimates={MEAN: replace(draw.estimates[MEAN], status=status)})


def clamped(draw, row):
    """The release with a mean of 0 in ``row``."""
    mean = draw.estimates[MEAN]
    value = np.where(np.arange(BINS) == row, 0, mean.value)
    return replace(draw, estimates={MEAN: replace(mean, value=value)})


def test_a_page_makes_a_false_claim_at_most_as_rarely_as_it_says(world):
    noise, wrong = SimulatedNoise(9), 0
    truth = {each: world.truth(world.later, each) for each in BOTH}
    changed = truth[MEAN] - world.truth(world.contributions, MEAN)
    for _ in range(RUNS):
        later = world.laplace_release(noise, world.later, 0.6, "R0002")
        earlier = world.laplace_release(noise, world.contributions, 0.6)
        found = findings(later, earlier)
        false = False
        for each in found.statistics:
            low, high = each.certain.low, each.certain.high
            told = high[:, None] < low[None, :]
            false |= bool(np.any(told & ~(truth[each.statistic][:, None] < truth[each.statistic][None, :])))
            middle = averaged(truth[each.statistic], each.statistic)
            false |= not each.average.low <= middle <= each.average.high
        fell, rose = changed_rows(found.changes.low, found.changes.high)
        false |= bool(np.any(changed[fell] >= 0) or np.any(changed[rose] <= 0))
        wrong += false
        assert not proven_order(
            found.statistics[0].certain.low, found.statistics[0].certain.high
        ).proves_nothing
    assert wrong <= MOST


def test_the_law_is_that_of_the_calibrated(world):
    noise = SimulatedNoise(1)
    lattice = law_of(world.laplace_release(noise, world.contributions, 1.0), MEAN)
    block = law_of(world.block_release(noise, world.contributions), MEAN)
    assert isinstance(lattice, LatticeLaw)
    assert np.allclose(lattice.scale, np.linspace(1, 2, BINS), rtol=1e-3)
    assert isinstance(block, BlockLaw)
    assert block.size.tolist() == [2] * BINS
    assert block.bias == pytest.approx(publish.rounding_bias(MEAN, world.bound))
    assert block.select_bins(np.array([1])).half_width(0.1) == pytest.approx(block.half_width(0.1)[1])


def test_averages_and_changes_of_variances_from_products_hold(world):
    noise, missed, runs = SimulatedNoise(14), 0, 60
    truth = world.truth(world.contributions, VARIANCE)
    change = world.truth(world.later, VARIANCE) - truth
    for _ in range(runs):
        draw = world.laplace_release(noise, world.contributions, 0.2)
        later = world.laplace_release(noise, world.later, 0.2, name="R0002")
        certain = simultaneous_intervals(draw, VARIANCE, ERROR / 4 / BINS)
        found = mean_with_interval(draw, VARIANCE, certain, ERROR / 4)
        moved = changes(later, draw, VARIANCE, ERROR / 4 / BINS, ERROR / 4)
        wrong = not found.low <= averaged(truth, VARIANCE) <= found.high
        wrong |= bool(np.any((moved.low > change + 1e-9) | (moved.high < change - 1e-9)))
        missed += wrong or not moved.average.low <= change.mean() <= moved.average.high
    assert missed <= ERROR * runs + 4 * np.sqrt(runs * ERROR * (1 - ERROR))


def test_variances_from_blocks_of_products_hold_at_once_and_in_the_average(world):
    noise, missed, runs = SimulatedNoise(15), 0, 60
    truth = world.truth(world.contributions, VARIANCE)
    for _ in range(runs):
        draw = world.block_release(noise, world.contributions)
        certain = simultaneous_intervals(draw, VARIANCE, ERROR / 2 / BINS)
        found = mean_with_interval(draw, VARIANCE, certain, ERROR / 2)
        missed += _misses(certain, truth) or not found.low <= averaged(truth, VARIANCE) <= found.high
    assert missed <= ERROR * runs + 4 * np.sqrt(runs * ERROR * (1 - ERROR))
    law = law_of(draw, VARIANCE)
    assert isinstance(law, MomentBlockLaw)
    estimate = draw.estimates[VARIANCE]
    # 24 records: a step of the mean is 2^-2/24, of the products the same; U is 60
    assert law.first == pytest.approx(np.full(BINS, 60 * 64 / 4 / 24))
    assert law.second == pytest.approx(np.full(BINS, 60 * 40 / 4 / 24))
    assert law.size.tolist() == [2] * BINS
    assert law.select_bins(np.array([1])).half_width(0.1) == pytest.approx(law.half_width(0.1)[1])
    half = (estimate.high - estimate.low) / 2
    inside = (estimate.low > 0) & (estimate.high < 900)
    assert np.all(half[inside] >= law.half_width(ERROR)[inside] * (1 - 1e-9))


def test_the_law_of_variances_from_products_is_that_of_both_noises(world):
    draw = world.laplace_release(SimulatedNoise(1), world.contributions)
    law, mean = law_of(draw, VARIANCE), law_of(draw, MEAN)
    assert isinstance(law, MomentsLaw)
    assert np.allclose(law.mean.scale, 60 * mean.scale, rtol=1e-12)
    assert np.allclose(law.products.scale, 0.6 * 60 * mean.scale, rtol=1e-6)
    assert np.allclose(draw.estimates[VARIANCE].noise_scale, 60 * mean.scale * 1.96 / 1.6, rtol=1e-6)
    assert law.bias == pytest.approx(publish.rounding_bias(VARIANCE, world.bound))
    assert law.select_bins(np.array([1])).half_width(0.1) == pytest.approx(law.half_width(0.1)[1])
    estimate = draw.estimates[VARIANCE]
    inside = (estimate.low > 0) & (estimate.high < 900)
    assert inside.any()
    half = ((estimate.high - estimate.low) / 2)[inside]
    # a lower end may follow the limit by the mean
    assert np.all(half >= law.half_width(ERROR)[inside] * (1 - 1e-9))


@pytest.mark.parametrize("kind", ["laplace", "block"])
def test_at_the_releases_own_level_the_intervals_are_the_releases_own(world, kind):
    noise = SimulatedNoise(2)
    make = world.laplace_release if kind == "laplace" else world.block_release
    draw = make(noise, world.contributions, *([1.0] if kind == "laplace" else []))
    estimate, found = draw.estimates[MEAN], simultaneous_intervals(draw, MEAN, ERROR)
    assert np.array_equal(found.low, outward_down(estimate.low, 1))
    assert np.array_equal(found.high, outward_up(estimate.high, 1))
    law = law_of(draw, MEAN)
    inside = (estimate.low > 0) & (estimate.high < 60)
    assert inside.any()
    assert (estimate.value - estimate.low)[inside] == pytest.approx(law.half_width(ERROR)[inside])


def test_ends_are_rounded_outward_and_never_to_minus_zero():
    assert outward_down(np.array([0.05, -0.01, 0.0]), 1).tolist() == [0.0, -0.1, 0.0]
    assert outward_up(np.array([0.05, -0.01]), 1).tolist() == [0.1, 0.0]
    assert not np.any(np.signbit(outward_up(np.array([-0.01]), 1)))


def test_deviations_are_the_roots_of_what_variances_say(world):
    draw = world.laplace_release(SimulatedNoise(16), world.contributions, 0.02)
    estimate = draw.estimates[VARIANCE]
    factor = float(draw.request.bound.unit.factor_to(draw.request.display_unit))
    ends = (np.sqrt(each) * factor for each in (estimate.low, estimate.value, estimate.high))
    low, value, high = (each[simultaneous_intervals(draw, VARIANCE, ERROR).rows] for each in ends)
    certain = simultaneous_intervals(draw, VARIANCE, ERROR)
    assert np.allclose(certain.value, value)
    assert np.all((certain.low <= low + 1e-9) & (certain.high >= high - 1e-9))
    assert np.all(certain.high - certain.low <= high - low + 0.3)
    assert (high - low).max() < 8, "so wide that any number would pass"


def test_the_least_difference_of_two_roots_is_that_of_brute_force():
    squares = np.linspace(0, 100, 201)
    later, earlier = np.meshgrid(squares, squares)
    for least in (-100.0, -37.5, -1.0, 0.0, 0.5, 20.0, 100.0):
        fits = later - earlier >= least
        brute = (np.sqrt(later) - np.sqrt(earlier))[fits].min()
        told = float(_root(np.array(least), np.array(20.0)))
        assert told <= brute + 1e-12
        assert brute - told <= (brute / 2 if least > 0 else 1e-12)


def test_calibrated_intervals_put_at_most_one_pair_in_twenty_the_wrong_way_round(make_release, bound_of):
    """In each variation of simulated cities, of all pairs that the report tells apart."""
    import h3

    cells = sorted(h3.str_to_int(each) for each in h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 7), 3))
    on = np.random.default_rng(1).random((len(cells), 250)) < 0.15
    user = np.nonzero(on)[1]
    count = np.random.default_rng(2).choice([1, 2, 5, 20], len(user))
    counts = Counts(
        cell=np.array(cells, dtype=np.uint64),
        slot=np.zeros(len(cells), dtype=np.int64),
        users_per_bin=np.count_nonzero(on, axis=1),
        user_index=user,
        count=count,
        users=250,
    )
    base = make_release([h3.int_to_str(each) for each in cells], statistics=(MEAN,))
    stated = [replace(each, interval_kind="calibrated") for each in base.disclosure.mechanisms]
    base = replace(base, disclosure=replace(base.disclosure, mechanisms=tuple(stated)))
    calibrated = CalibratedPooling(PublicFacts(counts, base.request.bound), (MEAN,), LossKind.PURE, 8 * PICO)
    told, wrong = {}, {}
    for city in simulated_cities_of(counts, base.request.bound):
        truth = true_statistic(city.values.contributions, MEAN) * 3.6
        apart = np.zeros((len(cells), len(cells)), dtype=int)
        for seed in range(4):
            found = calibrated.run(city.values, SimulatedNoise(seed), interval_level=0.95)
            certain = simultaneous_intervals(replace(base, estimates=found), MEAN, 0.01)
            assert len(certain.rows) == len(cells)
            apart += certain.high[:, None] < certain.low
        name = VARIATIONS[city.number]
        told[name], wrong[name] = apart.sum(), apart[truth[:, None] >= truth].sum()
    assert set(told) == {*VARIATIONS}
    assert sum(told.values()) > 500
    assert all(wrong[each] <= 0.05 * told[each] for each in told)
    # the law of such intervals is not known
    assert law_of(replace(base, estimates=found), MEAN) is None
    assert mean_with_interval(replace(base, estimates=found), MEAN, certain, 0.01) is None


@pytest.mark.parametrize("kind", list(LossKind))
def test_so_do_those_of_maps_of_which_nothing_is_public(bound_of, kind):
    """In the reference city, in each of its variations, of all pairs that are told apart."""
    loss = PureDP.of(4).pico if kind is LossKind.PURE else PICO // 4
    told, wrong = 0, 0
    for city in reference_cities(ReferenceCityShape(7, 1.2**17), bound_of(30), 300):
        counts = city.counts
        design = AddRemoveDesign(np.unique(counts.cell), city.bound, kind, loss, variance=False)
        truth = true_statistic(city, MEAN)
        noise = SimulatedNoise(5)
        for _ in range(3):
            found = add_remove_map(design, measure_all(design, city, noise)).mean
            at = design.place_numbers(counts.cell, counts.slot)[0]
            known = found.informed[at]
            low, high = (each[at][known] for each in found.ends[0.95])
            apart = high[:, None] < low
            told += apart.sum()
            wrong += apart[truth[known][:, None] >= truth[known]].sum()
    assert told > 300
    assert wrong <= 0.05 * told
