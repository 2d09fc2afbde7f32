"""Vectors of which nothing is public: what one vehicle can move by coming or going, and what it cannot do."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import AllocationError, UsageError
from trafficdp.measurement import sets
from trafficdp.measurement.laws import GRAINS, EntryIndex, Gaussian, Laplace
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.measurement.sets import AddRemoveBall, Box, Step
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.conversion import LEAST_SD
from trafficdp.privacy.loss import PICO, LossKind
from trafficdp.sensitive import VectorEntries

WILD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 1e-300, 1.5, -1.5, 1 / 3, 1e154]


def entries(user, coordinate, value):
    return VectorEntries(
        np.array(user, dtype=np.int64), np.array(coordinate, dtype=np.int64), np.array(value, float)
    )


def vehicle(values, user=0):
    return entries([user] * len(values), range(len(values)), values)


def attained(of, law, values):
    """What this vehicle's coming moves, as its exact loss."""
    if isinstance(law, Laplace):
        return sum(Fraction(abs(z)) / Fraction(law.scale[0]) for z in of.sums(values).tolist())
    return sum(Fraction(z * z) / (2 * Fraction(law.sd[0]) ** 2) for z in of.sums(values).tolist())


@pytest.mark.parametrize(("norm", "less"), [(1, [GRAINS - 2, -2]), (2, [GRAINS - 1, -3])])
def test_a_whole_vector_that_is_too_long_is_brought_toward_zero_alone(norm, less):
    both, user = np.array([GRAINS, -4, 7, -7]), np.array([0, 0, 1, 1])
    assert sets._shrunk(both, user, 2, norm).tolist() == [*less, 7, -7]


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1, 2])
def test_no_vehicle_moves_more_than_is_priced_and_some_move_all_of_it(norm):
    of = AddRemoveBall(3, norm, 1.5)
    law = (Laplace if norm == 1 else Gaussian)(np.full(3, 3.0 * GRAINS))
    loss = Step(of, law).loss()
    assert loss.shape == (1,)
    corners = itertools.product([0.0, 1.5, -1.5, 0.7, 40.0, *WILD[:5]], repeat=3)
    most = max(attained(of, law, vehicle(each)) for each in corners)
    assert most * PICO <= int(loss[0]) <= most * PICO + 2


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1, 2])
def test_whatever_floats_do_the_integers_are_no_longer_than_the_bound(norm):
    rng = np.random.default_rng(8)
    for size in (1, 2, 7, 300):
        of = AddRemoveBall(size, norm, 0.37)
        for _ in range(300):
            values = rng.normal(0, rng.choice([1e-6, 0.01, 1, 1e9]), size)
            strange = rng.random(size) < rng.choice([0, 0.3, 1])
            values[strange] = rng.choice(WILD, int(strange.sum()))
            whole = of.sums(vehicle(values)).astype(object)
            assert sum(abs(z) ** norm for z in whole) <= GRAINS**norm


@pytest.mark.slow
def test_all_equal_entries_do_not_round_beyond_the_bound():
    # 2^20 + 1 entries of half a grain more than their share: rounded, they would be twice too long
    many = GRAINS + 7
    for norm in (1, 2):
        whole = AddRemoveBall(many, norm, 1.0).sums(vehicle(np.full(many, 1.0)))
        assert 0 <= int((np.abs(whole) ** norm).sum()) <= GRAINS**norm


@pytest.mark.parametrize("norm", [1, 2])
def test_nobody_else_moves_when_a_vehicle_goes(norm):
    rng = np.random.default_rng(3)
    of = AddRemoveBall(6, norm, 2.0)
    user, place = rng.integers(0, 9, 80), rng.integers(-1, 7, 80)
    value = rng.choice([*WILD, 0.3, 2.0, -7.0], 80)
    everyone = of.sums(entries(user, place, value))
    for one in range(9):
        rest, own = user != one, user == one
        without = of.sums(entries(user[rest], place[rest], value[rest]))
        alone = of.sums(entries(user[own], place[own], value[own]))
        np.testing.assert_array_equal(everyone - without, alone)


def test_rows_of_one_coordinate_are_one():
    of = AddRemoveBall(2, 2, 1.0)
    twice = of.sums(entries([4] * 16, [0] * 16, [1.0] * 16))
    assert twice.tolist() == [GRAINS, 0]
    # neither order nor other vehicles in between matter
    mixed = of.sums(entries([4, 2, 4, 2], [1, 0, 1, 1], [0.2, 1.0, 0.1, np.nan]))
    assert mixed.tolist() == of.sums(entries([2, 4], [0, 1], [1.0, 0.2 + 0.1])).tolist()
    assert of.sums(entries([1, 1], [0, 0], [1e308, 1e308])).tolist() == [0, 0]


def test_what_is_no_coordinate_is_left_out():
    of = AddRemoveBall(2, 1, 1.0)
    assert of.sums(entries([0, 0, 0], [-1, 2, 1], [9.0, 9.0, 1.0])).tolist() == [0, GRAINS]
    assert of.sums(entries([], [], [])).tolist() == [0, 0]


def test_a_vehicle_keeps_its_first_coordinates_whoever_else_is_there(monkeypatch):
    monkeypatch.setattr(sets, "LARGEST_ENTRIES", 2)
    of = AddRemoveBall(4, 1, 1.0)
    own = entries([1] * 3, [3, 1, 2], [0.25] * 3)
    assert of.sums(own).tolist() == [0, GRAINS // 4, GRAINS // 4, 0]
    both = entries([1, 0, 1, 1, 0], [3, 3, 1, 2, 0], [0.25, 0.5, 0.25, 0.25, 0.5])
    assert (of.sums(both) - of.sums(own)).tolist() == [GRAINS // 2, 0, 0, GRAINS // 2]


def test_one_account_is_metered_for_everyone_who_could_be_there():
    of = AddRemoveBall(2, 1, 1.0)
    step = Step(of, Laplace(np.full(2, 1.0 * GRAINS)))
    measure = PrivacyMeter(SecureNoise(), step.loss(), LossKind.PURE)
    measure.measure(step, vehicle([1.0, 0.0]))
    assert measure.spent.shape == (1,)
    with pytest.raises(AllocationError):
        measure.measure(step, vehicle([]))


def test_noise_that_no_account_speaks_of_is_refused():
    of = AddRemoveBall(2, 2, 1.0)
    Step(of, Gaussian(np.full(2, float(LEAST_SD)))).loss()
    for sd in ([LEAST_SD - 1.0] * 2, [1e9, 0.0], [np.nan] * 2):
        with pytest.raises(UsageError, match="100000 grains"):
            Step(of, Gaussian(np.array(sd))).loss()


def test_nothing_but_hidden_balls_is_paid_where_presence_is_hidden():
    of, one = AddRemoveBall(1, 2, 1.0), np.zeros(1, dtype=np.int64)
    gaussian = Gaussian(np.array([2.0 * GRAINS]))
    hidden = PrivacyMeter(SecureNoise(), np.array([PICO]), LossKind.ZCDP, hidden=True)
    hidden.measure(Step(of, gaussian), vehicle([1.0]))
    box = Box(EntryIndex(one, one, 1, 1), one + GRAINS)
    spent = int(hidden.spent[0])
    for kind in LossKind:
        law = gaussian if kind is LossKind.ZCDP else Laplace(gaussian.sd)
        strict = PrivacyMeter(SecureNoise(), np.array([10 * PICO]), kind, hidden=True)
        with pytest.raises(UsageError, match="presence is hidden"):
            strict.measure(Step(box, law), np.zeros(1))
        assert not strict.spent.any()
        PrivacyMeter(SecureNoise(), np.array([10 * PICO]), kind).measure(Step(box, law), np.zeros(1))
    assert int(hidden.spent[0]) == spent


def test_what_does_not_fit_is_refused_before_a_value_is_read():
    step = Step(AddRemoveBall(2, 1, 1.0), Laplace(np.ones(2)))
    with pytest.raises(UsageError, match="entries for a hidden ball"):
        SimulatedNoise(0).measure(step, np.zeros(2))
    with pytest.raises(UsageError, match="theorem"):
        Step(AddRemoveBall(2, 2, 1.0), Laplace(np.ones(2))).loss()
    for size, norm, bound in ((0, 1, 1.0), (2, 3, 1.0), (2, 1, 0.0), (2, 1, np.nan)):
        with pytest.raises(UsageError, match="out of range"):
            AddRemoveBall(size, norm, bound)


def test_nothing_is_said_of_entries():
    assert repr(vehicle([27.5])) == "<VectorEntries: redacted>"
