"""Partial pooling where nothing about a vehicle is public: what is paid, what one vehicle moves, the map."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import laplace, norm

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import GRAINS, Gaussian, Laplace
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.measurement.sets import AddRemoveBall
from trafficdp.mechanisms.pooling import add_remove_map as maps
from trafficdp.mechanisms.pooling.add_remove_counts import (
    PRIORS,
    RANGES,
    CountAnswers,
    count_clips,
    estimate_counts,
)
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import FleetEstimate, add_remove_map, measure_all
from trafficdp.mechanisms.pooling.posterior import known_centre
from trafficdp.model import Knowledge, KnowledgeKind, KnownSpeeds
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.pricing import check_steps
from trafficdp.privacy.conversion import LEAST_SD
from trafficdp.privacy.loss import PICO, LossKind
from trafficdp.sensitive import Contributions

PLACES = np.arange(7, 31, dtype=np.uint64)
TOTAL = {LossKind.PURE: 2 * PICO, LossKind.ZCDP: PICO // 10}
KINDS = list(LossKind)


def town(bound, users=80, seed=0, slots=2, wild=0.5):
    """Vehicles of very different habits: each with its own places, numbers of records and speeds."""
    rng = np.random.default_rng(seed)
    rows = []
    level = rng.normal(0.25, 0.12, len(PLACES)).clip(0.02, 0.95)
    for user in range(users):
        often = rng.choice([0.05, 0.3, 1.0])
        for place, cell in enumerate(PLACES):
            for slot in range(slots):
                if rng.random() < often / slots:
                    count = int(rng.choice([1, 3, 40]))
                    share = rng.choice([0.0, 1.0]) if rng.random() < wild else level[place]
                    rows.append((cell, slot, user, count, count * round(share * bound.upper_steps), share))
    return table(rows, bound)


def table(rows, bound):
    rows = sorted(rows)
    cell, slot, user, count, total, share = (np.array(each) for each in zip(*rows, strict=True))
    squares = count * np.rint(share * bound.upper_steps).astype(np.int64) ** 2
    return Contributions.from_rows(
        cell=cell.astype(np.uint64),
        slot=slot.astype(np.int64),
        vehicle=user.astype(np.int64),
        count=count.astype(np.int64),
        total=total.astype(np.int64),
        total_of_squares=squares,
        bound=bound,
    )


def without(data, user):
    counts = data.counts
    keep = counts.user_index != user
    return Contributions.from_rows(
        cell=counts.cell[counts.bin_index][keep],
        slot=counts.slot[counts.bin_index][keep],
        vehicle=data.vehicle[counts.user_index][keep],
        count=counts.count[keep],
        total=data.total[keep],
        total_of_squares=data.total_of_squares[keep],
        bound=data.bound,
    )


class Recorded:
    """Draws by ``noise``, or says again what was said before; notes every step and its exact sums."""

    def __init__(self, noise=None, said=()):
        self.noise, self.said = noise, list(said)
        self.steps, self.sums, self.given = [], [], []

    def measure(self, step, values):
        self.steps.append(step)
        self.sums.append(step.of.sums(values))
        self.given.append(self.said.pop(0) if self.noise is None else self.noise.measure(step, values))
        return self.given[-1]


def losses(first, second):
    """What telling two data sets apart by this transcript costs at most, exactly, for either kind."""
    total = Fraction(0)
    for step, one, two in zip(first.steps, first.sums, second.sums, strict=True):
        move = [abs(int(d)) for d in one - two]
        if isinstance(step.law, Laplace):
            total += sum(
                Fraction(d) / Fraction(b) for d, b in zip(move, step.law.scale.tolist(), strict=True)
            )
        else:
            total += sum(
                Fraction(d * d) / (2 * Fraction(s) ** 2)
                for d, s in zip(move, step.law.sd.tolist(), strict=True)
            )
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variance", [False, True])
def test_the_steps_cost_the_total_and_no_more_for_any_possible_vehicle(bound_of, kind, variance):
    data = town(bound_of(30, step="0.1"))
    for total in (TOTAL[kind], 24_355_000_007, 1_000_001):
        design = AddRemoveDesign(PLACES, data.bound, kind, total, variance)
        assert sum(design.loss_shares) == total
        metered = PrivacyMeter(SecureNoise(), np.array([total]), kind)
        measure_all(design, data, metered)
        assert 0 <= total - int(metered.spent[0]) <= 2 * len(design.loss_shares)
        assert int(metered.spent[0]) == sum(int(step.loss()[0]) for step in design.steps())
        check_steps(design.steps(), np.array([total]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variance", [False, True])
def test_with_the_same_answers_one_vehicle_moves_no_more_than_is_paid(bound_of, kind, variance):
    """All of a vehicle's records go; the answers stay. So adaptive steps are tested as they are proved."""
    bound = bound_of(30, step="0.1")
    most = Fraction(0)
    for seed in range(3):
        data = town(bound, seed=seed)
        design = AddRemoveDesign(PLACES, bound, kind, TOTAL[kind], variance)
        first = Recorded(SimulatedNoise(seed))
        measure_all(design, data, first)
        for user in range(data.counts.users):
            again = Recorded(said=first.given)
            measure_all(design, without(data, user), again)
            cost = losses(first, again)
            assert cost <= Fraction(TOTAL[kind], PICO)
            most = max(most, cost)
    assert most > Fraction(TOTAL[kind], PICO) * Fraction(3, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_vehicle_that_is_far_off_everywhere_pays_all_of_it(bound_of, kind):
    bound = bound_of(30, step="0.1")
    data = town(bound, users=30)
    rows = [(7, 0, 99, 10**6, 10**6 * bound.upper_steps, 1.0)]
    counts = data.counts
    old = zip(
        counts.cell[counts.bin_index],
        counts.slot[counts.bin_index],
        counts.user_index,
        counts.count,
        data.total,
        data.total / counts.count / bound.upper_steps,
        strict=True,
    )
    both = table([*old, *rows], bound)
    design = AddRemoveDesign(PLACES, bound, kind, TOTAL[kind], False)
    first = Recorded(SimulatedNoise(1))
    measure_all(design, both, first)
    again = Recorded(said=first.given)
    measure_all(design, without(both, both.counts.users - 1), again)
    cost = losses(first, again) * PICO / TOTAL[kind]
    assert Fraction(9999, 10000) < cost <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_everything_published_is_a_function_of_the_answers(bound_of, kind):
    bound = bound_of(30, step="0.1")
    design = AddRemoveDesign(PLACES, bound, kind, TOTAL[kind], True)
    data = town(bound)
    first = Recorded(SimulatedNoise(4))
    answers = measure_all(design, data, first)
    # other data, same answers: the same map
    other = measure_all(design, town(bound, users=3, seed=9), Recorded(said=first.given))
    one, two = add_remove_map(design, answers), add_remove_map(design, other)
    for name in ("value", "error", "slower", "faster", "informed"):
        assert np.array_equal(getattr(one.mean, name), getattr(two.mean, name))
    assert one.mean.city == two.mean.city
    for level, both in one.mean.ends.items():
        assert np.array_equal(both, two.mean.ends[level])
    assert np.array_equal(one.variance.value, two.variance.value)
    assert one.variance.value.min() > 0
    ends = [*(one.mean.ends[level][0] for level in (0.95, 0.8)), one.mean.value]
    ends += [one.mean.ends[level][1] for level in (0.8, 0.95)]
    assert np.all(np.diff(np.stack(ends), axis=0) >= 0)
    assert ends[0].min() >= 0
    assert ends[-1].max() <= 30
    assert np.all(one.variance.value <= one.mean.value * (30 - one.mean.value))


def test_neither_slots_nor_places_elsewhere_change_what_is_asked(bound_of):
    bound = bound_of(30, step="0.1")
    whole = town(bound)
    design = AddRemoveDesign(PLACES, bound, LossKind.ZCDP, TOTAL[LossKind.ZCDP], False)
    one = measure_all(design, whole, SimulatedNoise(2))
    merged = whole.merged(whole.counts.cell, np.zeros_like(whole.counts.slot))
    assert np.array_equal(one.residual, measure_all(design, merged, SimulatedNoise(2)).residual)
    # the hexagon list comes from the area: leaving a visited one out takes its records out and nothing else
    less = AddRemoveDesign(PLACES[1:], bound, LossKind.ZCDP, TOTAL[LossKind.ZCDP], False)
    inside = whole.select(whole.counts.cell != PLACES[0])
    assert np.array_equal(
        measure_all(less, whole, SimulatedNoise(2)).weight,
        measure_all(less, inside, SimulatedNoise(2)).weight,
    )


def test_slots_that_are_measured_apart_have_numbers_of_their_own(bound_of):
    slots = np.array([2, 5])
    design = AddRemoveDesign(PLACES[:3], bound_of(30), LossKind.PURE, TOTAL[LossKind.PURE], False, slots)
    assert design.size == 6
    cell = np.array([7, 7, 8, 8, 7, 7, 40], dtype=np.uint64)
    at, there = design.place_numbers(cell, np.array([2, 5, 2, 5, 3, 9, 2]))
    assert at[there].tolist() == [0, 1, 2, 3]
    assert there.tolist() == [True] * 4 + [False] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_asked_for_by_two_lengths_and_a_number_a_place_and_kind(bound_of, kind):
    bound = bound_of(30)
    design = AddRemoveDesign(PLACES, bound, kind, TOTAL[kind], False, counts_percent=30)
    found = measure_all(design, town(bound, users=9), metered(design)).counts
    assert (len(found.lengths), len(found.clip_bounds)) == (2, 2)


@pytest.mark.parametrize("far", [0.0, 40.0])
def test_a_count_is_the_posterior_mean_above_zero_however_empty_the_city_is(bound_of, far):
    """With many places counts are expected to be a small part of the noise, be one ``far`` out or none."""
    many, kind = 8_100, LossKind.ZCDP
    design = AddRemoveDesign(
        np.arange(many, dtype=np.uint64), bound_of(30), kind, TOTAL[kind], False, counts_percent=30
    )
    sd = design.sd(design.counts_index + 1, 1.0)
    answer = np.zeros(many)
    answer[:5] = np.array([-4, -1, 1, 4, far]) * sd
    answers = CountAnswers(
        np.zeros(2, dtype=np.int64), np.ones(2), np.rint([answer * GRAINS] * 2).astype(int)
    )
    found = estimate_counts(design, answers, 0.95)["vehicles"][:6]
    expected = max(answer.mean(), sd / 90)
    x = np.linspace(0, 60, 1_200_001) * expected
    for each, likely in zip(answer[:4], found[:4], strict=True):
        law = np.exp(-((each - x) ** 2) / (2 * sd**2) + each**2 / (2 * sd**2) - x / expected)
        assert likely == pytest.approx((law * x).sum() / law.sum(), rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("places", [PLACES[:1], PLACES[:2]])
def test_an_empty_store_gives_a_map_too(bound_of, kind, places):
    bound = bound_of(30, step="0.1")
    one = town(bound, users=3)
    nobody = one.select(np.zeros(one.counts.bins, dtype=np.bool_))
    design = AddRemoveDesign(places, bound, kind, TOTAL[kind], True)
    found = add_remove_map(design, measure_all(design, nobody, metered(design)))
    assert np.all(np.isfinite(found.mean.value))
    assert len(found.mean.value) == len(places)


def metered(design):
    return PrivacyMeter(SecureNoise(), np.array([design.total]), design.kind)


def answers_of(design, data, seed=0):
    return measure_all(design, data, SimulatedNoise(seed))


CITY = FleetEstimate(vehicles=100.0, centre=8.0, clip_bound=3.0, power=0.4)


def weighed(design, noisy):
    """What answers about weights say that are ``noisy`` times their noise."""
    asked_for = np.array(noisy) * design.sd(1, 1.0) * GRAINS
    return maps.estimate_weights(design, CITY, np.rint(asked_for).astype(np.int64))


def test_the_likely_weight_is_the_posterior_mean_of_weights_above_zero(bound_of):
    design = AddRemoveDesign(PLACES, bound_of(30), LossKind.ZCDP, TOTAL[LossKind.ZCDP], False)
    sd = design.sd(1, 1.0)
    asked_for = np.linspace(-5, 8, 14) * sd
    x = np.linspace(0, 40 * sd, 400_001)
    law = np.exp(-((asked_for[:, None] - x) ** 2) / (2 * sd**2))
    exact = (law * x).sum(axis=1) / law.sum(axis=1)
    np.testing.assert_allclose(weighed(design, asked_for / sd).likely, exact, rtol=1e-3)
    assert np.all(maps.estimate_weights(design, CITY, np.array([-(2**50)])).likely > 0)


@pytest.mark.parametrize("kind", KINDS)
def test_residuals_are_lifted_where_weight_is_little_and_keep_their_usual_length(bound_of, kind):
    design = AddRemoveDesign(PLACES[:6], bound_of(30), kind, TOTAL[kind], False)
    places = weighed(design, [-3.0, 0.49, 0.51, 4.0, 20.0, 300.0])
    found, likely = places.lift, places.likely
    assert np.all(np.diff(found) < 0)
    np.testing.assert_allclose(found / found[5], (likely / likely[5]) ** -0.4)
    # the mean square of what a vehicle's entries are multiplied by, places as they are visited
    assert np.average(found[2:] ** 2, weights=likely[2:]) == pytest.approx(1)
    np.testing.assert_array_equal(places.lifted, found * likely)
    assert np.all(weighed(design, [-3.0, 0.49, 0.49]).lift == 1)


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_expected_to_be_slower_the_more_vehicles_visit_them(bound_of, kind):
    design = AddRemoveDesign(PLACES[:6], bound_of(30), kind, TOTAL[kind], False)
    places = weighed(design, [-3.0, 0.49, 0.51, 2.0, 4.0, 6.0])
    found, likely = places.centre, places.likely
    np.testing.assert_allclose(found[1:] / found[5], (likely[1:] / likely[5]) ** -0.2)
    # the mean over vehicles is the city's, of places that some are likely to visit
    assert np.average(found[2:], weights=likely[2:]) == pytest.approx(8.0)
    busy = weighed(design, [1.0, 1.0, 1.0, 1.0, 1.0, 3_000.0])
    np.testing.assert_allclose(busy.centre[0], 1.5 * 8.0)
    quiet = weighed(design, [40.0, 40.0, 40.0, 40.0, 600_000.0, 0.6])
    assert quiet.centre.min() >= 8.0 / 1.5
    np.testing.assert_array_equal(weighed(design, [-3.0, 0.49, 0.49]).centre, 8.0)


def test_what_is_asked_of_residuals_is_lifted_as_the_answers_about_weights_say(bound_of):
    """One vehicle alone, never clipped: the exact sums are G w (x - K)."""
    bound = bound_of(30)
    data = table([(7, 0, 0, 4, 4 * 8, 8 / 30), (9, 0, 0, 1, 9, 9 / 30)], bound)
    design = AddRemoveDesign(PLACES, bound, LossKind.ZCDP, TOTAL[LossKind.ZCDP], False)
    noted = Recorded(SimulatedNoise(3))
    answers = measure_all(design, data, noted)
    at, speed = np.array([0, 2]), np.array([8.0, 9.0])
    # the centre is that of places, whatever their records: 8.5, 2.5 above U/5 = 6
    lean = 2.5 / 6
    np.testing.assert_allclose(noted.sums[0] / GRAINS, [(1 + lean) / 2, (1 - lean) / 2], atol=1e-4)
    own = np.array([4.0, 1.0]) ** answers.city.power
    own /= np.linalg.norm(own)
    lift = maps.summarise_all_rounds(design, answers).places.lift
    assert lift.std() > 0.1
    clipped = 0
    for each, (exact, around) in enumerate(zip(noted.sums[2:], answers.maps, strict=True)):
        reach = answers.city.clip_bound * 0.8**each
        expected = lift[at] * own * (speed - around[at])
        clipped += np.linalg.norm(expected) > reach
        expected *= min(1, reach / np.linalg.norm(expected))
        np.testing.assert_allclose(exact[at] * reach / GRAINS, expected, atol=1e-4)
    assert 0 < clipped < design.rounds


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_count_by_what_their_noise_leaves_of_them(bound_of, kind):
    """A shorter clip has less noise: the mean of least variance, and that variance."""
    design = AddRemoveDesign(PLACES, bound_of(30), kind, TOTAL[kind], False)
    answers = answers_of(design, town(bound_of(30)))
    heard = maps.summarise_all_rounds(design, answers)
    clips = np.array([answers.city.clip_bound * 0.8**each for each in range(design.rounds)])
    noise = np.array([design.sd(2 + each, clip) for each, clip in enumerate(clips)])
    assert np.all(np.diff(noise) < 0)
    weights = noise**-2 / (noise**-2).sum()
    np.testing.assert_allclose(heard.y, weights @ (answers.residual * clips[:, None]) / GRAINS)
    np.testing.assert_allclose(heard.k, weights @ answers.maps)
    assert heard.sd == pytest.approx(np.sqrt((weights**2 * noise**2).sum()))


def test_the_refined_map_is_the_posterior_mean(bound_of):
    """By brute force over speeds and weights together."""
    design = AddRemoveDesign(PLACES[:3], bound_of(30), LossKind.PURE, 4 * PICO, False)
    city = CITY
    weight, residual = np.array([-0.5, 6.0, 60.0]), np.array([4.0, -20.0, 90.0])
    grains = GRAINS / city.clip_bound
    answers = maps.Answers(
        np.zeros(2, np.int64),
        city,
        np.rint(weight * GRAINS).astype(np.int64),
        np.rint(residual * grains).astype(np.int64)[None],
        np.array([[7.0, 9.0, 8.0]]),
        np.zeros(0, np.int64),
        np.zeros(1, np.int64),
    )
    sd, noise = design.sd(1, 1.0), design.sd(2, city.clip_bound)
    summary = maps.summarise_all_rounds(design, answers)
    theta, lift, centre = np.linspace(-30, 50, 8001), summary.places.lift, maps.learnt_centre(design, summary)
    assert lift[0] > 1 > lift[2]
    for i in range(3):
        low, high = max(weight[i] - 4 * sd, 0), max(weight[i] + 4 * sd, 2 * sd)
        w = low + (np.arange(maps.POINTS) + 0.5) / maps.POINTS * (high - low)
        spread = noise**2 + (30 / 33.5 * lift[i]) ** 2 * w
        law = np.exp(-np.sqrt(2) * np.abs(w - weight[i]) / sd) / (w + sd)
        law = law[:, None] * np.exp(-((theta - centre[i]) ** 2) / (2 * 3.0**2))
        off = residual[i] - lift[i] * w[:, None] * (theta - answers.maps[0, i])
        law = law * np.exp(-(off**2) / (2 * spread[:, None])) / np.sqrt(spread[:, None])
        exact = np.clip((law * theta).sum() / law.sum(), 0, 30)
        assert maps.final_map(design, summary)[i] == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_set_of_the_theorem_is_that_set(bound_of, kind):
    """By looking at every speed: |y/G - (mu - k) W| <= q_Y/G + |mu - k| q_W."""
    design = AddRemoveDesign(PLACES, bound_of(30), kind, TOTAL[kind] * 20, False)
    answers = answers_of(design, town(bound_of(30)), 5)
    # nobody seems to visit the first two places
    answers = replace(answers, weight=np.where(np.arange(len(PLACES)) < 2, 0, answers.weight))
    heard = maps.summarise_all_rounds(design, answers)
    low, high = maps.target_interval(design, heard, 0.95)
    q_y, q_w = maps._quantiles(design, heard, 0.95)
    y, k, lift, weight = heard.y, heard.k, heard.places.lift, answers.weight / GRAINS
    mu = np.linspace(0, 30, 30_001)[:, None]
    inside = np.abs(y / lift - (mu - k) * weight) <= q_y / lift + np.abs(mu - k) * q_w
    known = weight > q_w
    assert known.tolist() == [False] * 2 + [True] * (len(PLACES) - 2)
    for place in np.flatnonzero(known & inside.any(axis=0)):
        held = mu[inside[:, place], 0]
        assert held[0] == pytest.approx(low[place], abs=2e-3)
        assert held[-1] == pytest.approx(high[place], abs=2e-3)
    assert np.all((low[~known] == 0) & (high[~known] == 30))
    # no number of such a place says more than one for the city
    assert not np.any(add_remove_map(design, answers).mean.informed[~known])


@pytest.mark.parametrize(("kind", "law"), [(LossKind.PURE, laplace), (LossKind.ZCDP, norm)])
def test_the_theorem_looks_at_noise_as_far_as_it_reaches_that_often(bound_of, kind, law):
    design = AddRemoveDesign(PLACES, bound_of(30), kind, TOTAL[kind], False)
    heard = maps.summarise_all_rounds(design, answers_of(design, town(bound_of(30)), 5))
    for level in (0.5, 0.95):
        q_y, q_w = maps._quantiles(design, heard, level)
        for reach, sd in ((q_y, heard.sd), (q_w, design.sd(1, 1.0))):
            scale = sd / law.std()
            assert 1 - 2 * law.sf(reach / scale) == pytest.approx(np.sqrt(level), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_no_vector_of_two_numbers_up_to_one_is_longer_than_its_bound(bound_of, kind):
    design = AddRemoveDesign(PLACES, bound_of(30), kind, TOTAL[kind], False, counts_percent=10)
    longest = np.linalg.norm([1.0, 1.0], 1 if kind is LossKind.PURE else 2)
    assert design.lengths_bound == pytest.approx(longest, rel=1e-15)


def test_counts_are_clipped_at_twice_the_usual_length(bound_of):
    design = AddRemoveDesign(
        PLACES, bound_of(30), LossKind.PURE, TOTAL[LossKind.PURE], False, counts_percent=10
    )
    usual = np.array(PRIORS) * 1e6 * GRAINS / (design.lengths_bound * np.array(RANGES))
    found = count_clips(design, usual.astype(np.int64), 1e6)
    assert found == pytest.approx(2 * 2.0 ** np.array(PRIORS), rel=1e-6)


def test_a_vehicle_varies_as_its_records_do(bound_of):
    """By hand: how far its squares lie about the map, over what is likely there, each record alike."""
    data = town(bound_of(30, step="0.1"))
    design = AddRemoveDesign(PLACES, data.bound, LossKind.ZCDP, TOTAL[LossKind.ZCDP] * 40, True)
    heard = Recorded(SimulatedNoise(1))
    answers = measure_all(design, data, heard)
    found_map = maps.final_map(design, maps.summarise_all_rounds(design, answers))
    likely = design.likely_variance(answers.city.centre, found_map)
    counts, unit, said = data.counts, float(data.bound.step), []
    for vehicle in range(counts.users):
        own = np.flatnonzero(counts.user_index == vehicle)
        at, there = design.place_numbers(
            counts.cell[counts.bin_index[own]], counts.slot[counts.bin_index[own]]
        )
        own, at = own[there], at[there]
        if len(own):
            speed = data.total[own] * unit / counts.count[own]
            squares = data.total_of_squares[own] * unit**2 / counts.count[own]
            about = squares - 2 * found_map[at] * speed + found_map[at] ** 2
            said.append(np.average(about / likely[at], weights=counts.count[own]) - 1)
    assert len(said) > 5
    asked = heard.sums[design.variance_index][0]
    assert asked == pytest.approx(np.clip(said, -1, 1).sum() * GRAINS, abs=len(said))


def test_vehicles_are_asked_how_long_their_residuals_are(bound_of):
    """By hand: the l1 length of each vehicle's residuals about the first map, before it is clipped."""
    data = town(bound_of(30, step="0.1"))
    design = AddRemoveDesign(PLACES, data.bound, LossKind.PURE, 4 * PICO, True, counts_percent=10)
    heard = Recorded(SimulatedNoise(1))
    answers = measure_all(design, data, heard)
    places = maps.summarise_all_rounds(design, answers).places
    counts, found = data.counts, []
    for vehicle in range(counts.users):
        own = np.flatnonzero(counts.user_index == vehicle)
        at, there = design.place_numbers(
            counts.cell[counts.bin_index[own]], counts.slot[counts.bin_index[own]]
        )
        own, at = own[there], at[there]
        if len(own):
            # slots of a place are one
            at, one = np.unique(at, return_inverse=True)
            many, total = (np.bincount(one, each[own]) for each in (counts.count, data.total))
            records, speed = many**answers.city.power, total * float(data.bound.step) / many
            off = places.lift[at] * records / records.sum() * np.abs(speed - answers.maps[0][at])
            found.append(np.clip(np.log2(off.sum() / (answers.city.centre / 2)) / 1.5, -1, 1))
    assert len(found) > 5
    assert -0.95 < np.mean(found) < 0.95
    assert heard.sums[3][0] == pytest.approx(sum(found) * GRAINS, abs=len(found))
    assert (
        design.steps()[3].loss()[0]
        == design.loss_shares[3]
        == design.loss_shares[: design.variance_index][-1]
    )
    assert design.loss_shares[3] == sum(design.loss_shares[:4]) * 3 // 100


def test_the_usual_length_is_the_answer_as_far_as_noise_lets_it_be_heard(bound_of):
    """Of a large fleet it is what vehicles say, of a small one at a small loss what is known before."""
    nothing = np.zeros(0, np.int64)
    none = np.zeros((1, len(PLACES)))
    for vehicles, epsilon, said, expected in ((1e6, 4.0, 0.5, 0.5), (20.0, 0.01, 0.5, -0.5)):
        design = AddRemoveDesign(PLACES, bound_of(30), LossKind.PURE, int(epsilon * PICO), False)
        length = np.array([int(said * vehicles * GRAINS)])
        fleet = maps.FleetEstimate(vehicles, 8.0, 2.0, 0.3)
        asked = maps.Answers(np.zeros(2, np.int64), fleet, none[0], none, none, nothing, length)
        assert maps.usual_length(design, asked) == pytest.approx(4.0 * 2 ** (1.5 * expected), rel=0.01)
    design = AddRemoveDesign(PLACES, bound_of(30), LossKind.ZCDP, PICO, False)
    assert maps.usual_length(design, asked) == 8.0
    assert len(design.steps()) == 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_target_is_held_as_often_as_the_theorem_says(bound_of, kind):
    """The map without noise, about the same fed-back maps: what the theorem is about."""
    bound = bound_of(30, step="0.1")
    data = town(bound)
    design = AddRemoveDesign(PLACES, bound, kind, TOTAL[kind] * 4, False)
    held, shown = 0, 0
    for seed in range(60):
        first = Recorded(SimulatedNoise(seed))
        answers = measure_all(design, data, first)
        low, high = maps.target_interval(design, maps.summarise_all_rounds(design, answers), 0.95)
        exact = maps.summarise_all_rounds(
            design, replace(answers, residual=np.stack(first.sums[2 : 2 + design.rounds]))
        )
        target = np.clip(exact.k + exact.y / (exact.places.lift * first.sums[1] / GRAINS), 0, 30)
        held += int(((low - 1e-9 <= target) & (target <= high + 1e-9)).sum())
        shown += len(target)
    # places of one draw are independent in their noise; 7 standard deviations below 95 % are 0.909
    assert held / shown > 0.909
    assert shown == 60 * len(PLACES)


def test_more_vehicles_take_the_clip_and_the_power_up(bound_of):
    design = AddRemoveDesign(PLACES, bound_of(30), LossKind.PURE, 4 * PICO, False)
    small, large = (
        maps.estimate_fleet(design, np.array([n * GRAINS // 2, n * GRAINS // 2], dtype=np.int64))
        for n in (10, 100_000)
    )
    assert (small.vehicles, small.power) == (20.0, 0.25)
    assert small.clip_bound == pytest.approx(30 / 18)
    assert small.centre == pytest.approx(6.0)
    assert large.clip_bound == 10.0
    assert 0.25 < large.power <= 1.0
    tiny = maps.estimate_fleet(design, np.array([-(2**40), -(2**40)], dtype=np.int64))
    assert tiny.vehicles == 20.0


@pytest.mark.slow
def test_a_map_is_nearer_than_one_number_where_there_is_budget(bound_of):
    bound = bound_of(30, step="0.1")
    data = town(bound, users=2_000, slots=1, wild=0.0)
    counts = data.counts
    truth = np.bincount(counts.bin_index, data.total, counts.bins) / counts.samples_per_bin * 0.1
    flat = np.abs(truth - truth.mean()).mean()
    for kind, total in ((LossKind.PURE, 4 * PICO), (LossKind.ZCDP, PICO // 3)):
        design = AddRemoveDesign(PLACES, bound, kind, total, False)
        error = [
            np.abs(add_remove_map(design, answers_of(design, data, s)).mean.value - truth).mean()
            for s in range(6)
        ]
        assert np.mean(error) < 0.6 * flat


def test_what_cannot_be_shared_out_is_refused(bound_of):
    bound = bound_of(30)
    for places in (PLACES[:0], PLACES[::-1], np.repeat(PLACES, 2)):
        with pytest.raises(UsageError, match="nothing to pool"):
            AddRemoveDesign(places, bound, LossKind.PURE, PICO, False)
    with pytest.raises(UsageError, match="too small"):
        AddRemoveDesign(PLACES, bound, LossKind.PURE, 10, True)
    with pytest.raises(UsageError, match=r"at most 54\.9\d"):
        AddRemoveDesign(PLACES, bound, LossKind.ZCDP, 500 * PICO, False).steps()
    assert len(AddRemoveDesign(PLACES, bound, LossKind.PURE, 500 * PICO, False).steps()) == 4


@pytest.mark.parametrize("rho", [1, 300])
def test_all_that_is_ever_asked_in_rho_is_gaussian_with_noise_enough_for_the_account(bound_of, rho):
    design = AddRemoveDesign(PLACES, bound_of(30), LossKind.ZCDP, rho * PICO, True, counts_percent=30)
    assert len(design.steps()) == 2 + 6 + 1 + 3
    for step in design.steps():
        assert isinstance(step.of, AddRemoveBall)
        assert isinstance(step.law, Gaussian)
        assert step.law.sd.min() >= LEAST_SD


def test_answers_are_frozen_with_the_numbers_fed_back(bound_of):
    design = AddRemoveDesign(PLACES, bound_of(30), LossKind.ZCDP, TOTAL[LossKind.ZCDP], False)
    answers = answers_of(design, town(bound_of(30)))
    assert answers.residual.shape == answers.maps.shape == (6, len(PLACES))
    first = maps.estimate_weights(design, answers.city, answers.weight)
    np.testing.assert_array_equal(answers.maps[0], first.centre)
    # the maps that were asked about follow from the answers before them
    for each in range(1, 6):
        before = replace(answers, residual=answers.residual[:each], maps=answers.maps[:each])
        expected = maps.next_map(design, maps.summarise_all_rounds(design, before))
        np.testing.assert_array_equal(answers.maps[each], expected)
    assert replace(answers).city == maps.estimate_fleet(design, answers.fleet)


def known(speed):
    """What one source says of every bin."""
    source = Knowledge(kind=KnowledgeKind.RELEASE, name="r0001", sha256="0" * 64, share=0.6)
    return KnownSpeeds((source,), np.atleast_2d(np.asarray(speed, dtype=np.float64)))


@pytest.mark.parametrize("kind", list(LossKind))
def test_nothing_public_the_map_starts_there_and_telling_a_vehicle_costs_no_more(bound_of, kind):
    data = town(bound_of(30, step="0.1"), users=9)
    design = AddRemoveDesign(PLACES, data.bound, kind, TOTAL[kind], False)
    speeds = known(np.linspace(1.0, 9.0, len(PLACES)))
    first = Recorded(SimulatedNoise(3))
    answers = maps.measure_all(design, data, first, speeds)
    plain = maps.estimate_weights(design, answers.city, answers.weight)
    started = known_centre(speeds, plain.centre, plain.likely, np.arange(design.size), design.upper)
    np.testing.assert_allclose(answers.maps[0], started)
    assert not np.allclose(started, plain.centre)
    assert maps.steps_follow_answers(design, answers, speeds)
    assert not maps.steps_follow_answers(design, answers)
    assert not maps.steps_follow_answers(design, answers, known(np.linspace(9.0, 1.0, len(PLACES))))
    for user in range(9):
        again = Recorded(said=first.given)
        maps.measure_all(design, without(data, user), again, speeds)
        assert losses(first, again) <= (1 + 1e-9) * TOTAL[kind] / PICO
