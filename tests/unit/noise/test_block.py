"""The lattice law, its loss and its sampler, in exact fractions and against exhaustive sums."""

from fractions import Fraction
from itertools import product
from math import ceil, comb, exp, log, prod

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.noise.block import acceptance_terms
from trafficdp.noise.source import SecureNoise, SimulatedNoise


def integers(*values):
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("widths", [(1,), (3,), (1, 1), (2, 5), (1, 2, 7), (4, 4, 4, 1)])
def test_proposal_times_acceptance_is_exactly_the_law_of_the_radius(widths):
    d = len(widths)
    ratios = set()
    for k in range(40):
        hit, out_of = acceptance_terms(integers(*[k] * d), integers(*widths), np.arange(1, d + 1))
        accepted = prod(Fraction(int(h), int(n)) for h, n in zip(hit, out_of, strict=True))
        assert 0 < accepted <= 1
        ratios.add(comb(k + d, d) * accepted / prod(2 * a * k + 1 for a in widths))
    assert len(ratios) == 1


@pytest.mark.parametrize("widths", [(2,), (1, 2), (2, 1, 3)])
def test_the_lattice_law_is_the_one_stated(widths):
    # P(k) prod 1/(2 a k + 1) summed over the k that reach z: e^(-c/s)/(1 - e^(-1/s)), exactly in Fractions
    q, last = Fraction(1, 2), 60
    weight = [q**k for k in range(last)]  # P(k) / prod(2 a k + 1), unnormalised
    for z in product(*(range(-2 * a - 1, 2 * a + 2) for a in widths)):
        least = max(ceil(Fraction(abs(x), a)) for x, a in zip(z, widths, strict=True))
        reached = sum(
            w for k, w in enumerate(weight) if all(abs(x) <= a * k for x, a in zip(z, widths, strict=True))
        )
        assert reached == (q**least - q**last) / (1 - q)


@pytest.mark.parametrize(
    ("widths", "change"), [((3,), (4,)), ((2, 1), (3, 1)), ((1, 4), (2, 9)), ((2, 2, 1), (1, 2, 2))]
)
def test_the_loss_is_the_largest_number_of_widths_and_attained(widths, change):
    def level(z):
        return max(ceil(Fraction(abs(x), a)) for x, a in zip(z, widths, strict=True))

    reach = range(-14, 15)
    worst = max(
        abs(level(z) - level([x + c for x, c in zip(z, change, strict=True)]))
        for z in product(reach, repeat=len(widths))
    )
    assert worst == max(ceil(Fraction(c, a)) for c, a in zip(change, widths, strict=True))


@pytest.mark.parametrize(("d", "a", "s", "rate"), [(2, 1, 50, 0.98), (6, 1, 50, 0.94), (20, 1, 50, 0.82)])
def test_acceptance_is_as_frequent_as_planned(d, a, s, rate):
    assert _acceptance(d, a, s, 20_000) == pytest.approx(rate, abs=0.006)


def test_small_scales_are_hardly_ever_accepted():
    assert _acceptance(20, 100, 1, 400) == pytest.approx(7e-5, abs=5e-6)


def _acceptance(d, a, s, last):
    k = np.arange(last, dtype=np.float64)
    place = np.arange(1, d + 1)[:, None]
    log_proposal = np.log((k + place) / place).sum(axis=0) - k / s + (d + 1) * log(1 - exp(-1 / s))
    accepted = ((2 * a * k + 1) / (2 * a * (k + place))).prod(axis=0)
    assert np.exp(log_proposal).sum() == pytest.approx(1)
    return float((np.exp(log_proposal) * accepted).sum())


def test_blocks_need_not_be_contiguous_and_have_their_own_scales():
    n = 4_000
    block = np.tile(integers(0, 1, 0), n) + 2 * np.repeat(np.arange(n), 3)
    scale = np.tile([40.0, 400.0], n)
    z = SimulatedNoise(5).block(np.full(3 * n, 10, dtype=np.int64), block, scale).reshape(n, 3)
    # E|z| = a s (d + 1)/2
    np.testing.assert_allclose(np.abs(z).mean(axis=0), [600, 4000, 600], rtol=0.07)
    inside = np.abs(z[:, 0]) + np.abs(z[:, 2])
    assert np.corrcoef(np.abs(z[:, 0]), np.abs(z[:, 2]))[0, 1] > 0.1
    assert abs(np.corrcoef(np.abs(z[:, 1]), inside)[0, 1]) < 0.1
    assert abs(np.corrcoef(z[:, 0], z[:, 2])[0, 1]) < 0.1


def test_the_same_seed_draws_the_same_noise():
    arguments = integers(3, 5), integers(0, 0), np.array([100.0])
    assert SimulatedNoise(1).block(*arguments).tolist() == SimulatedNoise(1).block(*arguments).tolist()


@pytest.mark.parametrize(
    ("widths", "block", "scale"),
    [
        (integers(0, 1), integers(0, 0), [1.0]),
        (integers(1, 1), integers(0, 0), [0.0]),
        (integers(1, 1), integers(0, 0), [np.inf]),
        (integers(1, 1), integers(0, 2), [1.0, 1.0, 1.0]),
        (integers(1, 1), integers(0, 1), [1.0]),
        (integers(2**50, 1), integers(0, 0), [1e6]),
    ],
)
def test_impossible_blocks_are_rejected_before_anything_is_drawn(widths, block, scale):
    for source in (SecureNoise(), SimulatedNoise(1)):
        with pytest.raises(UsageError):
            source.block(widths, block, np.array(scale))


def test_no_statistics_need_no_noise():
    assert SecureNoise().block(integers(), integers(), np.zeros(0)).shape == (0,)
