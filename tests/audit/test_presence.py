"""Adding or removing a vehicle: lower bounds for an asking and the whole, and mistakes that must be caught.

Every mistake hands over what a vehicle's rows become, a vector; draws tell stores apart that differ by all
rows of one vehicle. Seeded; the confidence is 1 - 10^-9, so a failure is not chance.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trafficdp.audit.lower_bound import lower_bound_from_draws
from trafficdp.measurement.laws import GRAINS
from trafficdp.measurement.sets import AddRemoveBall
from trafficdp.mechanisms.pooling.add_remove_design import RELATION, AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.pooling.design import noise_for
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.conversion import gaussian_to_approx
from trafficdp.privacy.loss import PICO, ZCDP, LossKind
from trafficdp.sensitive import Contributions, VectorEntries

TESTS = Path(__file__).parents[1]
CERTAIN_ERROR = 1e-9
DRAWS = 50_000
DELTA = 0.01
RHO = 0.05
RUNS = 200
"""Of whole maps, so many on each data set."""


def proved(with_it, without, noise, kind, draws=DRAWS):
    """The epsilon (at DELTA for rho) that sums (C,) in grains prove under noise of scale or sd ``noise``."""
    source, many = SimulatedNoise(6), len(with_it)
    width = np.full(draws * many, float(noise))
    sides = []
    for sums in (with_it, without):
        tiled = np.tile(np.asarray(sums, dtype=np.float64), draws)
        drawn = source.discrete_laplace(width) if kind is LossKind.PURE else source.discrete_gaussian(width)
        y = (tiled + drawn).reshape(draws, many)
        one, two = (np.asarray(each, dtype=np.float64) for each in (with_it, without))
        # the log ratio of both laws: nothing tells them apart better
        far = np.abs(y - two) - np.abs(y - one) if kind is LossKind.PURE else y @ (one - two)
        sides.append(far.sum(axis=1) if kind is LossKind.PURE else far)
    return lower_bound_from_draws(*sides, CERTAIN_ERROR, 0.0 if kind is LossKind.PURE else DELTA)[0]


def claim(kind, part):
    return part / PICO if kind is LossKind.PURE else float(gaussian_to_approx(ZCDP(part), DELTA).epsilon)


def entries(*rows):
    user, place, value = zip(*rows, strict=True)
    return VectorEntries(np.array(user), np.array(place), np.array(value, dtype=np.float64))


@pytest.mark.parametrize("kind", list(LossKind))
def test_what_a_hidden_ball_costs_is_not_refuted_and_nearly_proved(kind):
    part = PICO if kind is LossKind.PURE else PICO // 2
    ball = AddRemoveBall(3, 1 if kind is LossKind.PURE else 2, 2.5)
    law = noise_for(kind, RELATION, part, 1)
    width = law.scale[0] if kind is LossKind.PURE else law.sd[0]
    others = [(u, u % 3, 1.0) for u in range(1, 6)]
    for own in ([(0, 0, 99.0)], [(0, 0, 2.0), (0, 1, -2.0), (0, 2, 2.0)], [(0, 0, np.nan)]):
        sums = ball.sums(entries(*others, *own)), ball.sums(entries(*others))
        found = proved(*sums, width, kind)
        assert found <= claim(kind, part)
        if own == [(0, 0, 99.0)]:
            # what rho implies at a delta is more than a Gaussian costs there
            assert found > (0.7 if kind is LossKind.PURE else 0.3) * claim(kind, part)


@dataclass
class Wrong:
    """Sums of both stores in units of what is claimed to be one vehicle's most, and that unit in grains."""

    with_it: list[Any]
    without: list[Any]
    unit: float
    kind: LossKind = LossKind.PURE
    noise_of_the_other: float | None = None


def float_clip_alone():
    """Clipped to length 1 as floats, then rounded: three entries of 2/3 of a grain become three grains."""
    vector = np.full(3, 7.0)
    whole = np.rint(vector * min(1.0, 1 / np.abs(vector).sum()) * 2)
    return Wrong(whole.tolist(), [0, 0, 0], 2)


def no_clamp():
    """A weight inf/inf, cast to an integer: -2^63, whose square wraps around to 0 and passes as short."""
    with np.errstate(invalid="ignore"):
        whole = (np.array([np.inf]) / np.inf).astype(np.int64)
    assert int((whole * whole).sum()) <= 4
    return Wrong(whole.astype(float).tolist(), [0.0], 2, LossKind.ZCDP)


def two_rows_for_one_coordinate():
    """Sixteen hours of one place, clipped as so many coordinates and added up as one: too long."""
    rows = np.full(16, 1.0) / 4
    assert np.linalg.norm(rows) <= 1
    return Wrong([rows.sum() * GRAINS], [0.0], GRAINS, LossKind.ZCDP)


def rows_capped_in_their_order():
    """The first four rows of the store count: a vehicle that sends before the others takes their places."""
    others, own = [(1, 1), (2, 1), (3, 1), (4, 1)], [(0, 0)] * 4
    sums = []
    for rows in (own + others, others):
        kept = dict.fromkeys(rows[:4])
        sums.append([sum(place == at for _, place in kept) * GRAINS for at in (0, 1)])
    return Wrong(*sums, GRAINS)


def exact_count_in_the_ratio():
    """Noisy sum over the exact number of vehicles: without the vehicle the noise is twice as wide."""
    return Wrong([0.0], [0.0], GRAINS, noise_of_the_other=2.0)


def places_from_the_data():
    """Hexagons that some vehicle visited: one more is listed, with its noise, or it is not there at all."""
    return Wrong([0.0], [0.0], GRAINS, noise_of_the_other=0.0)


def scale_from_the_fleet():
    """Noise by the largest number of records of the vehicles that are there, and not by a public bound."""
    return Wrong([5.0 * GRAINS], [5.0 * GRAINS], GRAINS, noise_of_the_other=0.02)


def two_vehicles_under_one_identifier():
    """The mean speed of both in one bucket: fast alone, slow with another of many records: moves by two."""
    fast = (1 + 1) / 2 * GRAINS, (1 - 1) / 2 * GRAINS
    return Wrong([fast[1], fast[0]], [*fast], GRAINS)


MISTAKES = (
    float_clip_alone,
    no_clamp,
    two_rows_for_one_coordinate,
    rows_capped_in_their_order,
    exact_count_in_the_ratio,
    places_from_the_data,
    scale_from_the_fleet,
    two_vehicles_under_one_identifier,
)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake):
    wrong = mistake()
    part = PICO if wrong.kind is LossKind.PURE else int(RHO * PICO)
    law = noise_for(wrong.kind, RELATION, part, 1)
    width = (law.scale[0] if wrong.kind is LossKind.PURE else law.sd[0]) * wrong.unit / GRAINS
    if wrong.noise_of_the_other is None:
        found = proved(wrong.with_it, wrong.without, width, wrong.kind)
    else:
        source, rows = SimulatedNoise(4), np.full(DRAWS, width)
        one = np.abs(wrong.with_it[0] - wrong.with_it[0] + source.discrete_laplace(rows))
        two = np.abs(source.discrete_laplace(rows * wrong.noise_of_the_other))
        found = lower_bound_from_draws(one.astype(float), two.astype(float), CERTAIN_ERROR)[0]
    assert found > claim(wrong.kind, part), found


def test_every_mistake_is_listed_beside_the_test_that_keeps_it_out(pages):
    said = pages.rows(pages.section("docs/guides/which-mechanism.md", "Evidence"))[2:]
    assert [row[0].strip("`") for row in said] == [each.__name__ for each in MISTAKES]
    tests = "".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    assert all(f"def {row[2].strip('`')}(" in tests for row in said)


def city(bound, *, with_it):
    """Five vehicles in two places, and one with a million records at the bound, alone in a third."""
    rows = [(7 + v % 2, v, 4, 4 * (20 + v), 4 * (20 + v) ** 2) for v in range(1, 6)]
    many = 10**6
    rows += [(9, 6, many, many * bound.upper_steps, many * bound.upper_steps**2)] if with_it else []
    cell, vehicle, count, total, squares = (np.array(each) for each in zip(*sorted(rows), strict=True))
    return Contributions.from_rows(
        cell=cell.astype(np.uint64),
        slot=np.zeros(len(cell), dtype=np.int64),
        vehicle=vehicle,
        count=count,
        total=total,
        total_of_squares=squares,
        bound=bound,
    )


@pytest.mark.parametrize("runs", [RUNS, pytest.param(2_000, marks=pytest.mark.prove)])
@pytest.mark.parametrize("kind", list(LossKind))
def test_no_runs_refute_the_whole(kind, runs, bound_of):
    """Maps of whole runs, at the place that one vehicle alone visits, and what is told of the fleet."""
    bound = bound_of(64)
    part = PICO if kind is LossKind.PURE else int(RHO * PICO)
    design = AddRemoveDesign(np.array([7, 8, 9], dtype=np.uint64), bound, kind, part, True)
    noise = SimulatedNoise(5)

    def seen(answers):
        value = add_remove_map(design, answers).mean.value[2]
        return float(answers.fleet.sum() + answers.weight[2]), float(value)

    sides = [
        np.array([seen(measure_all(design, data, noise)) for _ in range(runs)])
        for data in (city(bound, with_it=True), city(bound, with_it=False))
    ]
    for one, other in zip(*(side.T for side in sides), strict=True):
        found = lower_bound_from_draws(one, other, CERTAIN_ERROR, 0.0 if kind is LossKind.PURE else DELTA)[0]
        assert found <= claim(kind, part)


@pytest.mark.parametrize("kind", list(LossKind))
def test_runs_with_a_fortieth_of_the_noise_are_caught(kind, bound_of):
    """So that the audit of so few runs could find the mechanism wrong."""

    class Quieter(SimulatedNoise):
        def discrete_gaussian(self, sd):
            return super().discrete_gaussian(sd / 40)

        def discrete_laplace(self, scale):
            return super().discrete_laplace(scale / 40)

    bound = bound_of(64)
    part = PICO if kind is LossKind.PURE else int(RHO * PICO)
    design = AddRemoveDesign(np.array([7, 8, 9], dtype=np.uint64), bound, kind, part, False)
    noise = Quieter(5)
    sides = [
        np.array([float(measure_all(design, data, noise).weight[2]) for _ in range(RUNS)])
        for data in (city(bound, with_it=True), city(bound, with_it=False))
    ]
    found = lower_bound_from_draws(*sides, CERTAIN_ERROR, 0.0 if kind is LossKind.PURE else DELTA)[0]
    assert found > claim(kind, part), found
