"""Every set and law: the loss is equal to the largest that brute force finds, and values stay inside."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.errors import AllocationError, UsageError
from trafficdp.measurement import laws
from trafficdp.measurement.laws import GRAINS, Block, EntryIndex, Gaussian, Laplace
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.measurement.nodes import exact_price
from trafficdp.measurement.sets import Ball, Box, Moments, Ranks, Step, record_price
from trafficdp.mechanisms.protocol import ClaimedSums
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import PICO, LossKind


def numbers(*values):
    return np.array(values, dtype=np.int64)


def support(*pairs, users, coordinates):
    coordinate, user = zip(*pairs, strict=True)
    return EntryIndex(numbers(*user), numbers(*coordinate), users, coordinates)


def exponent(law, move):
    """The loss of a move of the sums (Python fractions), by the law's formula written out."""
    if isinstance(law, Laplace):
        return sum(Fraction(abs(d)) / Fraction(b) for d, b in zip(move, law.scale.tolist(), strict=True) if d)
    if isinstance(law, Gaussian):
        return sum(
            Fraction(d * d) / (2 * Fraction(s) ** 2) for d, s in zip(move, law.sd.tolist(), strict=True)
        )
    units = 0
    for block in set(law.block.tolist()):
        inside = np.flatnonzero(law.block == block)
        units += max(-(-abs(int(move[i])) // int(law.half_width[i])) for i in inside)
    return Fraction(units) / Fraction(law.scale)


def shifted(value, shift):
    return value << shift if shift >= 0 else value >> -shift


def worst(points, law, shift, others):
    """The largest loss over two vectors of one vehicle and all sums of the others."""
    most = Fraction(0)
    for rest in others:
        sums = [[shifted(r + v, s) for r, v, s in zip(rest, point, shift, strict=True)] for point in points]
        for a, b in itertools.product(sums, sums):
            most = max(most, exponent(law, [x - y for x, y in zip(a, b, strict=True)]))
    return most


def near(pico, exact, rounding=3):
    """Whether whole 10^-12 are ``exact`` rounded up, by a few units at most."""
    return exact * PICO <= pico <= exact * PICO * (1 + Fraction(1, 10**12)) + rounding


LAWS = [
    Laplace(np.array([2.5, 7.0])),
    Gaussian(np.array([2.5, 7.0])),
    Block(numbers(3, 2), numbers(0, 0), 5.5),
    Block(numbers(3, 2), numbers(1, 0), 5.5),
]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=["laplace", "gaussian", "one block", "two blocks"])
@pytest.mark.parametrize("shift", [(0, 0), (2, 0), (-1, -2)], ids=str)
def test_box_costs_what_brute_force_finds(law, shift):
    box = Box(support((0, 0), (0, 1), (1, 0), users=2, coordinates=2), numbers(5, 2, 7))
    points = list(itertools.product(range(6), range(8)))
    others = [(r, q) for r in range(2) for q in range(4)]
    loss = Step(box, law, numbers(*shift)).loss()
    exact = worst(points, law, shift, others)
    assert near(int(loss[0]), exact)
    assert int(loss[1]) <= int(loss[0])


def sums_of(records, steps):
    return sum(records), sum(x * (steps - x) for x in records)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [3, 4])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("second", [2.0, 5.0, 40.0])
def test_pairs_cost_what_records_can_do_and_no_point_of_the_set_does_more(steps, count, second):
    law = Laplace(np.array([4.0, second]))
    of = Moments(support((0, 0), users=1, coordinates=1), numbers(count), steps, np.array([True]))
    loss = int(Step(of, law).loss()[0])
    attained = [sums_of(r, steps) for r in itertools.product(range(steps + 1), repeat=count)]
    assert near(loss, worst(attained, law, (0, 0), [(0, 0)]))
    inside = set()
    for s, w in itertools.product(range(-2, steps * count + 3), range(-2, count * steps**2)):
        inside.add(tuple(of.sums(np.array([[s], [w]])).tolist()))
    assert set(attained) <= inside
    assert near(loss, worst(sorted(inside), law, (0, 0), [(0, 0)]))


@pytest.mark.parametrize("shift", [(0, -1), (0, -3), (-2, 0), (-1, -2), (2, -1)], ids=str)
@pytest.mark.parametrize("count", [1, 2])
def test_pairs_whose_sums_are_floored_pay_for_one_multiple_more(shift, count):
    steps, scale = 3, (4.0, 5.0)
    of = Moments(support((0, 0), users=1, coordinates=1), numbers(count), steps, np.array([True]))
    law = Laplace(np.array(scale))
    loss = int(Step(of, law, numbers(*shift)).loss()[0])
    attained = [sums_of(r, steps) for r in itertools.product(range(steps + 1), repeat=count)]
    others = list(itertools.product(range(4), range(8)))
    assert loss >= worst(sorted(set(attained)), law, shift, others) * PICO
    coarse = [Fraction(b) / Fraction(2) ** s for b, s in zip(scale, shift, strict=True)]
    floored = sum(1 / Fraction(b) for b, s in zip(scale, shift, strict=True) if s < 0)
    assert near(loss, count * exact_price(steps, *coarse) + floored)


def test_a_sum_that_is_not_measured_costs_nothing_in_blocks():
    of = Moments(support((0, 0), users=1, coordinates=1), numbers(2), 4, np.array([False]))
    assert Step(of, Block(numbers(3, 0), numbers(0, -1), 1.0)).loss().tolist() == [3 * PICO]
    assert of.largest().tolist() == [8, 0]


@pytest.mark.parametrize("shift", [(0, 0, 0, 0), (1, 0, 2, 0)], ids=str)
@pytest.mark.parametrize("width", [(2, 3, 5, 4), (2, 6, 30, 11), (9, 2, 3, 3)], ids=str)
def test_pairs_in_blocks_are_covered(shift, width):
    steps, counts = 3, (2, 1)
    law = Block(numbers(*width), numbers(0, 0, 1, 1), 3.0)
    of = Moments(
        support((0, 0), (1, 0), users=1, coordinates=2), numbers(*counts), steps, np.array([True, True])
    )
    loss = int(Step(of, law, numbers(*shift)).loss()[0])
    each = [[sums_of(r, steps) for r in itertools.product(range(steps + 1), repeat=m)] for m in counts]
    points = [(a[0], b[0], a[1], b[1]) for a, b in itertools.product(*each)]
    exact = worst(sorted(set(points)), law, shift, [(0, 0, 0, 0)])
    assert exact * PICO <= loss <= (exact + 1 / Fraction(3)) * PICO + 3


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1, 2])
def test_a_ball_keeps_every_vector_and_costs_its_diameter(norm):
    entries = support((0, 0), (1, 0), users=1, coordinates=2)
    most = np.full(2, GRAINS, dtype=np.int64)
    ball = Ball(entries, norm, 1.5, -most, most)
    wild = [(0.0, 0.0), (1e300, -1e300), (np.inf, 3.0), (np.nan, -2.0), (1.5, 0.0), (-1.5, 0.0), (0.7, 0.9)]
    rng = np.random.default_rng(5)
    wild += [tuple(rng.normal(0, 2, 2)) for _ in range(200)]
    found = [ball.sums(np.array(v)).tolist() for v in wild]
    assert all(sum(abs(x) ** norm for x in z) <= GRAINS**norm for z in found)
    law = (Laplace if norm == 1 else Gaussian)(np.full(2, 3.0 * GRAINS))
    loss = int(Step(ball, law).loss()[0])
    pairs = itertools.product(found, found)
    exact = max(exponent(law, [a - b for a, b in zip(x, y, strict=True)]) for x, y in pairs)
    # extreme vectors among the wild ones lie almost a diameter apart
    assert exact * PICO <= loss <= exact * PICO * Fraction(1001, 1000)


def test_a_narrow_interval_in_a_ball_costs_less():
    entries = support((0, 0), (1, 0), users=1, coordinates=2)
    ball = Ball(entries, 1, 1.0, numbers(0, -10), numbers(100, 0))
    loss = int(Step(ball, Laplace(np.full(2, 50.0))).loss()[0])
    assert near(loss, Fraction(110, 50))
    assert ball.sums(np.array([1.0, 1.0])).tolist() == [100, 0]


def missed(values, t, rank, above):
    """By how many of ``values`` the number ``t`` misses the ranks, written out."""
    slower, upto = sum(v < t for v in values), sum(v <= t for v in values)
    return max(0, slower - rank, above - upto)


def quantiles(places, high, rank, above, scale, kind=LossKind.PURE):
    many = places.coordinates
    sides = (np.full(many, each) for each in (high, rank, above))
    return Ranks(places, *sides, np.full(many, scale), kind)


THREE = support((0, 0), (0, 1), (0, 2), users=3, coordinates=1)


@pytest.mark.parametrize(("rank", "above"), [(1, 2), (1, 1), (2, 3)])
def test_a_private_quantile_costs_what_brute_force_finds(rank, above):
    loss = int(quantiles(THREE, 4, rank, above, 2.0).loss()[0])
    assert near(loss, Fraction(1))

    def law(values):
        weight = {t: np.exp(-missed(values, t, rank, above) / 2.0) for t in range(5)}
        return {t: w / sum(weight.values()) for t, w in weight.items()}

    most, moved = 0.0, 0
    for rest in itertools.combinations_with_replacement(range(5), 2):
        for a, b in itertools.product(range(5), repeat=2):
            moved = max(
                moved,
                *(
                    abs(missed([a, *rest], t, rank, above) - missed([b, *rest], t, rank, above))
                    for t in range(5)
                ),
            )
            one, two = law([a, *rest]), law([b, *rest])
            most = max(most, *(np.log(one[t] / two[t]) for t in range(5)))
    # a score moves by just as much as the price takes it to
    assert moved == 1
    assert 0.5 < most <= loss / PICO
    assert near(int(quantiles(THREE, 4, rank, above, 2.0, LossKind.ZCDP).loss()[0]), Fraction(1, 8))


@pytest.mark.parametrize("values", [(1, 1, 3), (0, 0, 0), (4, 4, 4), (0, 2, 4), (2, 3, 3)], ids=str)
def test_a_private_quantile_is_drawn_by_its_law(values):
    many = 60_000
    places = EntryIndex(np.tile(np.arange(3), many), np.repeat(np.arange(many), 3), 3, many)
    drawn = SimulatedNoise(3).select(quantiles(places, 4, 1, 2, 1.0), np.tile(numbers(*values), many))
    weight = np.array([np.exp(-missed(values, t, 1, 2)) for t in range(5)])
    expected = weight / weight.sum() * many
    found = np.bincount(drawn, minlength=5)
    # six standard deviations of each
    assert np.all(np.abs(found - expected) < 6.5 * np.sqrt(expected))


@pytest.mark.parametrize("users", [3, 6, 41, 400])
def test_a_private_quantile_is_drawn_by_its_law_however_many_vehicles_there_are(users):
    """Never the exact one where there are many: how many vehicles it misses follows the same law."""
    many, high, scale = 4_000, 60, max(2.0, users / 9)
    values = np.random.default_rng(users).integers(0, high // 2, users)
    places = EntryIndex(np.tile(np.arange(users), many), np.repeat(np.arange(many), users), users, many)
    rank, above = users // 2, users - users // 2
    drawn = SimulatedNoise(3).select(quantiles(places, high, rank, above, scale), np.tile(values, many))
    cost = np.array([missed(values.tolist(), t, rank, above) for t in range(high + 1)])
    law = np.exp(-cost / scale) / np.exp(-cost / scale).sum()
    # exact ones cost nothing: how often these are drawn, and the mean of all costs
    for kind in (cost == 0).astype(float), cost.astype(float), np.arange(high + 1.0):
        mean = float(law @ kind)
        sd = np.sqrt((law @ kind**2 - mean**2) / many)
        assert sd > 0
        assert abs(kind[drawn].mean() - mean) < 7 * sd


def test_without_noise_a_quantile_is_the_one_of_the_numbers_however_many_are_alike():
    for values in itertools.product(range(4), repeat=3):
        found = SimulatedNoise(0).select(quantiles(THREE, 3, 1, 2, 0.0), numbers(*values))
        assert found.tolist() == [sorted(values)[1]]
    nobody = EntryIndex(numbers(), numbers(), 1, 1)
    assert 0 <= SimulatedNoise(0).select(quantiles(nobody, 3, 0, 0, 1.0), numbers())[0] <= 3


def test_values_beyond_the_set_are_brought_inside_without_an_error():
    box = Box(support((0, 0), (0, 1), users=2, coordinates=1), numbers(5, 9))
    for values in ([10**18, -(10**18)], [np.nan, np.inf], [1e300, 2.0], [4], [1, 2, 3], []):
        assert 0 <= int(box.sums(np.array(values))[0]) <= 14


def test_nothing_is_drawn_beyond_the_charge():
    box = Box(support((0, 0), (0, 1), users=2, coordinates=1), numbers(5, 9))
    step = Step(box, Laplace(np.array([9.0])))
    charge = step.loss()
    metered = PrivacyMeter(SecureNoise(), charge, LossKind.PURE)
    metered.measure(step, numbers(1, 2))
    assert np.array_equal(metered.spent, charge)
    with pytest.raises(AllocationError):
        metered.measure(step, numbers(1, 2))
    with pytest.raises(UsageError, match="kinds"):
        PrivacyMeter(SecureNoise(), charge, LossKind.ZCDP).measure(step, numbers(1, 2))


def test_sums_are_exact_beneath_their_noise():
    box = Box(support((0, 0), (0, 1), (1, 1), users=2, coordinates=2), numbers(5, 9, 4))
    silent = Laplace(np.zeros(2))
    found = SimulatedNoise(0).measure(Step(box, silent, numbers(3, -1)), numbers(7, 8, 3))
    assert found.tolist() == [(5 + 8) << 3, 3 >> 1]


def test_what_cannot_be_priced_is_refused():
    entries = support((0, 0), users=1, coordinates=1)
    with pytest.raises(UsageError, match="in order"):
        support((1, 0), (0, 0), users=1, coordinates=2)
    with pytest.raises(UsageError, match="in order"):
        support((0, 0), (0, 0), users=1, coordinates=1)
    with pytest.raises(UsageError, match="theorem"):
        Step(Moments(entries, numbers(2), 3, np.array([True])), Gaussian(np.ones(2))).loss()
    with pytest.raises(UsageError):
        Step(Box(entries, numbers(3)), Laplace(np.zeros(1))).loss()
    with pytest.raises(UsageError, match="choice is out of range"):
        quantiles(THREE, 4, 1, 2, -1.0)
    with pytest.raises(UsageError, match="no noise"):
        Step(Box(entries, numbers(3)), Block(numbers(1), numbers(-1), 1.0)).loss()
    with pytest.raises(UsageError, match="64 bits"):
        Box(entries, numbers(2**62))
    for sides in (numbers(-1), numbers(3, 3)):
        with pytest.raises(UsageError, match="no such sides"):
            Box(entries, sides)
    with pytest.raises(UsageError):
        Step(ClaimedSums(entries, numbers(3), "none"), Laplace(np.ones(1)), numbers(1))


@pytest.mark.parametrize("counts", [(0, 2), (2, 0), (-1, 2)])
def test_pairs_of_a_vehicle_without_records_are_refused(counts):
    entries = support((0, 0), (0, 1), users=2, coordinates=1)
    with pytest.raises(UsageError, match="no such counts"):
        Moments(entries, numbers(*counts), 3, np.array([True]))


@given(steps=st.integers(1, 70_000), first=st.floats(1e-3, 1e9), second=st.floats(1e-3, 1e12))
def test_the_price_of_a_record_is_never_below_the_exact_one_and_hardly_above(steps, first, second):
    price = Fraction(float(record_price(steps, np.array([first]), np.array([second]))[0]))
    exact = exact_price(steps, Fraction(first), Fraction(second))
    assert exact <= price <= exact * (1 + Fraction(1, 10**12))


def test_vehicles_in_one_bin_of_a_block_do_not_pay_for_two():
    places = support((0, 0), (0, 1), (1, 1), users=2, coordinates=2)
    of = Moments(places, numbers(2, 1, 1), 4, np.array([True, False]))
    # whole units, as a scale of 10^12 counts them
    law = Block(numbers(64, 64, 256, 0), numbers(0, 0, 1, -1), float(PICO))
    alone, everywhere = Step(of, law, numbers(10, 10, 10, 0)).loss().tolist()
    # c = 1: both sums of one bin cost no more than the first
    assert alone - 2 * 4 * 2**10 // 64 in (1, 2)
    assert everywhere == 4 * 2**10 // 64 + 4 * 2**10 // 256
    assert everywhere < alone


def test_what_blocks_cost_is_the_same_however_many_entries_are_sorted_together(monkeypatch):
    rng = np.random.default_rng(1)
    coordinate, user = np.divmod(np.unique(rng.integers(0, 30 * 20, 400)), 20)
    law = Block(np.full(30, 3), rng.integers(-1, 5, 30), 2.0)
    move = np.where(law.block[coordinate] < 0, 0, rng.integers(0, 40, len(user)))
    whole = law.loss(EntryIndex(user, coordinate, 20, 30), move)
    monkeypatch.setattr(laws, "_AT_ONCE", 30)
    assert law.loss(EntryIndex(user, coordinate, 20, 30), move).tolist() == whole.tolist()


def test_pairs_whose_sums_could_leave_64_bits_are_refused():
    one = numbers(0)
    for count, steps in ((2**41, 2**10), (2**20, 2**21), (2**59, 2)):
        with pytest.raises(UsageError, match="64 bits"):
            Moments(EntryIndex(one, one, 1, 1), numbers(count), steps, np.array([True]))


def test_pairs_without_any_entry_cost_nobody_anything():
    nobody = EntryIndex(numbers(), numbers(), 2, 1)
    of = Moments(nobody, numbers(), 4, np.array([True]))
    assert Step(of, Block(numbers(3, 3), numbers(0, 1), 1.0)).loss().tolist() == [0, 0]


@pytest.mark.parametrize("ends", [(-GRAINS - 1, 0), (1, 2), (0, GRAINS + 1), (-2, -1)], ids=str)
def test_a_ball_whose_intervals_are_not_around_0_or_beyond_the_bound_is_refused(ends):
    low, high = numbers(ends[0]), numbers(ends[1])
    with pytest.raises(UsageError, match="a ball is out of range"):
        Ball(support((0, 0), users=1, coordinates=1), 1, 1.0, low, high)
