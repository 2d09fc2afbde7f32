"""Ranks of draws in their law are those that sums of every term give, inside and outside."""

import math

import numpy as np
import pytest

from trafficdp.noise.choice import block_rank, choice_rank, gaussian_rank, laplace_rank, probabilities

V = 0.3


def ranks(weight, n):
    """(log outside, log inside) of n, where ``weight(m)`` is that of every m from 0."""
    law = [weight(m) for m in range(n + 6000)]
    whole = math.fsum(law)
    outside = math.log((math.fsum(law[n + 1 :]) + V * law[n]) / whole)
    return outside, math.log((math.fsum(law[:n]) + (1 - V) * law[n]) / whole)


def test_ranks_of_choices_fill_the_unit_interval_in_the_order_of_cost():
    # three choices; a cell of no weight; equal costs; one of scale 0; one candidate alone
    cost, weight = np.array([3, 0, 3, 0, 9, 5, 5, 7]), np.array([2, 1, 4, 0, 1, 3, 1, 2])
    start, scale = np.array([0, 5, 7, 8]), np.array([2.5, 0.0, 1.0])
    law = probabilities(cost, weight, start, scale)
    order = [[1, 3, 0, 2, 4], [5, 6], [7]]
    for part, own in enumerate(order):
        before = 0.0
        for cell in own:
            at = start[:-1].copy()
            at[part] = cell
            ends = [
                choice_rank((cost, weight, start, scale), at, np.full(3, within)) for within in (1e-12, 0.25)
            ]
            assert np.exp(ends[0][1][part]) == pytest.approx(before, abs=1e-9)
            assert np.exp(ends[1][1][part]) == pytest.approx(before + law[cell] / 4, abs=1e-9)
            assert np.exp(ends[1][0][part]) == pytest.approx(1 - before - law[cell] / 4, abs=1e-9)
            before += law[cell]
        assert before == pytest.approx(1)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("scale", [0.3, 1.0, 40.0])
def test_a_rank_of_laplace_noise_is_the_tail_and_a_part_of_the_number_itself(scale, sign):
    n = [0, 1, 2, math.ceil(scale), math.ceil(8 * scale)]
    outside, inside = laplace_rank(sign * np.array(n), np.full(5, scale), np.full(5, V))
    for each, found in enumerate(zip(outside.tolist(), inside.tolist(), strict=True)):
        assert found == pytest.approx(
            ranks(lambda m: (2 if m else 1) * math.exp(-m / scale), n[each]), rel=1e-9
        )


@pytest.mark.parametrize(
    ("sd", "close"), [(0.4, 1e-9), (3.0, 1e-9), (63.0, 1e-9), (65.0, 1e-3), (300.0, 1e-3)]
)
def test_a_rank_of_gaussian_noise_is_the_tail_and_a_part_of_the_number_itself(sd, close):
    n = [0, 1, math.ceil(sd), math.ceil(3 * sd)]
    outside, inside = gaussian_rank(np.array(n), np.full(4, sd), np.full(4, V))
    for each, found in enumerate(zip(outside.tolist(), inside.tolist(), strict=True)):
        expected = ranks(lambda m: (2 if m else 1) * math.exp(-(m**2) / (2 * sd**2)), n[each])
        assert found == pytest.approx(expected, rel=close)


@pytest.mark.parametrize(
    ("half_width", "scale", "close"),
    [
        ([1], 0.7, 1e-9),
        ([3, 1, 7], 5.0, 1e-9),
        ([2, 9], 20.0, 1e-9),
        ([5] * 6, 14.0, 3e-3),
        ([4], 60.0, 1e-3),
        ([2, 9], 90.0, 1e-3),
    ],
)
def test_a_rank_of_block_noise_counts_the_vectors_of_every_norm(half_width, scale, close):
    def within(m):
        return math.prod(2 * a * m + 1 for a in half_width)

    def weight(m):
        return (within(m) - (within(m - 1) if m else 0)) * math.exp(-m / scale)

    size = len(half_width)
    norms = [0, 1, round(size * scale), round(2 * size * scale)]
    # blocks one after the other, and their coordinates apart
    block = np.tile(np.arange(4), size)
    width = np.repeat(half_width, 4)
    z = -width * np.array(norms)[block]
    z[4:] //= 2
    outside, inside = block_rank(z, width, block, scale, np.full(4, V))
    for each, found in enumerate(zip(outside.tolist(), inside.tolist(), strict=True)):
        assert found == pytest.approx(ranks(weight, norms[each]), rel=close, abs=1e-9)


def test_many_blocks_are_looked_at_in_parts(monkeypatch):
    block = np.repeat(np.arange(50), 3)
    width, z = np.arange(1, 151), np.arange(150) * 7 % 40
    whole = block_rank(z, width, block, 9.0, np.full(50, V))
    monkeypatch.setattr("trafficdp.noise.choice.AT_ONCE", 7)
    parts = block_rank(z, width, block, 9.0, np.full(50, V))
    assert np.allclose(whole, parts, rtol=1e-12)


def test_what_cannot_be_is_far_out_and_not_infinite():
    ranks = laplace_rank(np.array([10**9, 0]), np.array([1.0, 1e12]), np.array([V, 0.0]))
    assert np.isfinite(ranks).all()
    assert ranks[0][0] < -1e5
