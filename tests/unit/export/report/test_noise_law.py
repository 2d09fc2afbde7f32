"""Laws of noise hand the tails of ``noise`` the scales, shares of the error and units that are theirs.

That the tails hold is tested where they are proved; here a law that is narrower by any factor is noticed.
"""

import numpy as np
import pytest

from trafficdp.export.report.certainty import (
    BlockLaw,
    LatticeLaw,
    MomentBlockLaw,
    MomentsLaw,
    average_half_width,
    difference_half_width,
)
from trafficdp.noise.block import block_quantile, pair_bounds
from trafficdp.noise.tail import (
    block_sum_half_width,
    lattice_shift,
    one_sided_sum_half_width,
    sum_half_width,
    two_noises_half_width,
)

STEP, BIAS, SCALE = np.array([0.5, 0.25, 2.0]), np.array([0.1, 0.2, 0.6]), np.array([3.0, 8.0, 5.0])
LATTICE, FINE = LatticeLaw(SCALE, STEP, BIAS), LatticeLaw(2 * SCALE, STEP / 8, BIAS / 2)
WIDTH, SIZE = np.array([4, 1, 7]), np.array([2, 2, 3])
BLOCKS = BlockLaw(np.array([0, 0, 1]), WIDTH, SIZE, np.array([6.0, 6.0, 6.0]), STEP, BIAS)
MOMENTS = MomentsLaw(LATTICE, FINE, BIAS)
PAIRS = MomentBlockLaw(SIZE, np.array([3.0, 1.0, 0.0]), np.array([2.0, 5.0, 0.0]), BIAS / 8, BIAS)
at_every_error = pytest.mark.parametrize("error", [0.3, 0.01])


@at_every_error
def test_one_number_lies_as_far_off_as_its_tail_says(error):
    half = np.floor(WIDTH * (6.0 * block_quantile(SIZE, 1 - error) + 1)) * STEP + BIAS
    np.testing.assert_allclose(BLOCKS.half_width(error), half)
    shift = lattice_shift(SCALE) * STEP + lattice_shift(2 * SCALE) * STEP / 8
    both = two_noises_half_width(SCALE * STEP, SCALE * STEP / 4, error) + shift
    np.testing.assert_allclose(MOMENTS.half_width(error), both + BIAS)
    pair = pair_bounds(SIZE[:2], PAIRS.first[:2], PAIRS.second[:2], 1 - error)[1]
    np.testing.assert_allclose(PAIRS.half_width(error), [*pair, 0] + BIAS / 8 + BIAS)
    # a change: two lattices together, and each with half the error where one is none
    np.testing.assert_allclose(difference_half_width(LATTICE, FINE, error), both + 1.5 * BIAS)
    apart = LATTICE.half_width(error / 2) + BLOCKS.half_width(error / 2)
    np.testing.assert_allclose(difference_half_width(LATTICE, BLOCKS, error), apart)


@at_every_error
def test_an_average_lies_as_far_off_as_the_tail_of_the_sum_says(error):
    mean = [sum_half_width(SCALE * STEP / 3, error), sum_half_width(SCALE * STEP / 3, error / 2)]
    assert LATTICE.average_half_width(error) == pytest.approx(mean[0])
    six = np.concatenate([SCALE * STEP / 3, SCALE * STEP / 12])
    assert average_half_width([LATTICE, FINE], error) == pytest.approx(
        sum_half_width(six, error) + 1.5 * BIAS.mean()
    )
    of_blocks = (
        block_sum_half_width(STEP / 3, WIDTH, BLOCKS.block, SIZE, BLOCKS.scale, each)
        for each in (error, error / 2)
    )
    block = list(of_blocks)
    assert BLOCKS.average_half_width(error) == pytest.approx(block[0])
    both = mean[1] + block[1] + 2 * BIAS.mean()
    assert average_half_width([LATTICE, BLOCKS], error) == pytest.approx(both)
    shift = lattice_shift(SCALE) * STEP / 3
    sizes = one_sided_sum_half_width(SCALE * STEP / 3, shift, SCALE * STEP / 12, error)
    assert MOMENTS.average_half_width(error) == pytest.approx(sizes)
    pairs = pair_bounds(SIZE[:2], PAIRS.first[:2], PAIRS.second[:2], 1 - error / 3)[1].sum() + BIAS.sum() / 8
    assert PAIRS.average_half_width(error) == pytest.approx(pairs / 3)
