"""Whole releases keep what they charge, and draws tell when a release draws less noise than it states.

The confidence is 1 - 10^-9, so that a failure is not chance.
"""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.audit import releases
from trafficdp.audit.lower_bound import audit_draws
from trafficdp.audit.neighbours import Neighbours, one_bin
from trafficdp.audit.releases import (
    CELLS,
    RECORDS,
    audited_releases,
    negative_log_likelihood,
    repeated_law,
    small_city_samples,
)
from trafficdp.binning.cells import parents_of
from trafficdp.cli.commands.audit import BOUND, DELTA
from trafficdp.measurement.laws import Block, Gaussian, Laplace
from trafficdp.mechanisms.names import BY_NAME
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.quantiles import CalibratedQuantiles
from trafficdp.mechanisms.simulated_cities import repeat_bins
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.conversion import pure_to_zcdp
from trafficdp.privacy.loss import LossKind, PureDP
from trafficdp.sensitive import SensitiveInputs

CERTAIN = 1 - 1e-9
RELEASES = audited_releases(BOUND, PureDP.of(1), DELTA)


class Quieter(SimulatedNoise):
    """A quarter of the noise that is stated."""

    def discrete_laplace(self, scale):
        return super().discrete_laplace(scale / 4)

    def discrete_gaussian(self, sd):
        return super().discrete_gaussian(sd / 4)

    def block(self, half_width, block, scale):
        return super().block(half_width, block, scale / 4)

    def choose(self, cost, weight, start, scale, runs=1):
        return super().choose(cost, weight, start, scale / 4, runs)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_a_release_keeps_its_charge_and_a_quarter_of_its_noise_is_caught(release):
    def found(noise):
        arguments = {"draws": 20_000, "confidence": CERTAIN, "delta": release.delta}
        return audit_draws(release.draws, release.pairs, noise, **arguments).epsilon

    assert found(SimulatedNoise(3)) <= release.claim < found(Quieter(3))


@pytest.mark.parametrize("loss", [PureDP.of(1), pure_to_zcdp(PureDP.of(1))], ids=["in epsilon", "in rho"])
def test_a_declared_map_of_zones_keeps_its_charge_and_a_quarter_of_its_noise_is_caught(loss, monkeypatch):
    monkeypatch.setattr(releases, "CELLS", (1, 2, 3))
    release = releases._of_anyone("of zones", BOUND, loss, DELTA)
    assert release.pairs[0].left.counts.cell.tolist() == [1, 2, 3]

    def found(noise):
        arguments = {"draws": 20_000, "confidence": CERTAIN, "delta": release.delta}
        return audit_draws(release.draws, release.pairs, noise, **arguments).epsilon

    assert found(SimulatedNoise(3)) <= release.claim < found(Quieter(3))


def test_an_answer_by_rank_keeps_its_charge_and_a_quarter_of_its_scale_is_caught():
    median, bound = Statistic.VEHICLE_MEDIAN, ContributionBound(Fraction(4), Fraction(1), BOUND.unit)

    def asked(samples):
        public = PublicFacts(samples.counts, samples.bound)
        return CalibratedQuantiles(public, (median,), LossKind.PURE, 10**12)

    sides = [one_bin([[own]], bound) for own in (0, bound.upper_steps)]
    pairs = [Neighbours("the only vehicle of a hexagon, at 0 or at U", *sides)]

    def medians(samples, times, noise):
        copies = repeat_bins(samples, times, copy_vehicles=True)
        values = SensitiveInputs(copies.contributions(), lambda: copies)
        return asked(copies).run(values, noise, interval_level=0.95)[median].value

    def found(noise):
        return audit_draws(medians, pairs, noise, draws=20_000, confidence=CERTAIN).epsilon

    assert asked(sides[0]).event().loss == PureDP.of(1)
    assert 0.2 < found(SimulatedNoise(3)) <= 1 < found(Quieter(3))


def test_every_accounting_both_kinds_of_loss_a_stream_and_a_declared_grid_are_among_them():
    names = [each.name for each in RELEASES]
    assert names[: len(BY_NAME)] == [f"release_{name}" for name in BY_NAME]
    rest = ["release_separately_in_epsilon", "release_separately_in_rho", "release_stream"]
    rest += ["release_hidden_in_epsilon", "release_hidden_in_rho"]
    rest += ["release_by_rank_in_epsilon", "release_by_rank_in_rho"]
    assert names[len(BY_NAME) :] == rest
    assert all(0.6 < each.claim <= 1 for each in RELEASES if not each.delta)


def test_the_city_is_of_siblings_and_its_first_vehicle_moves_alone():
    cells = np.array(CELLS, dtype=np.uint64)
    assert len(set(parents_of(cells, 6).tolist())) == 1
    left, right = small_city_samples(BOUND, 0), small_city_samples(BOUND, BOUND.upper_steps)
    moved = np.flatnonzero(left.value != right.value)
    assert len(moved) == sum(row[0] for row in RECORDS)
    assert left.contributions().total[left.counts.user_index == 0].tolist() == [0, 0]


def test_the_log_likelihood_of_noise_is_its_law():
    def numbers(*values):
        return np.array(values, dtype=np.int64)

    noise = negative_log_likelihood(Laplace(np.array([2.0, 0.0, 4.0])), numbers([-6, 0, 2], [0, 0, 0]))
    assert noise.tolist() == [3.5, 0.0]
    assert negative_log_likelihood(Gaussian(np.array([2.0, 0.0])), numbers([-6, 0])).tolist() == [4.5]
    # the largest of 2 and 3 in one block, 1 in the other, nothing where nothing varies
    law = Block(numbers(3, 2, 5, 1), numbers(0, 0, 1, -1), 2.0)
    assert negative_log_likelihood(law, numbers([4, -5, 5, 0], [0, 0, 0, 0])).tolist() == [2.0, 0.0]


def test_repeated_noise_is_in_blocks_of_its_own():
    law = repeated_law(Block(np.array([3, 2]), np.array([0, -1]), 2.0), 3)
    assert (law.block.tolist(), law.half_width.tolist()) == ([0, -1, 1, -1, 2, -1], [3, 2] * 3)
