"""Exact integer noise for a block of statistics that are released together (the l-infinity mechanism).

For d integer statistics with half widths a_g >= 1 and a scale s, P(z) is proportional to
exp(-max_g ceil(|z_g| / a_g) / s) on the integer vectors. A user who moves statistic g by at most D_g
therefore loses at most max_g ceil(D_g / a_g) / s: ceil(|z + D|/a) <= ceil(|z|/a) + ceil(D/a). The maximum
over the block, where separate noises would cost the sum. (K-norm mechanism, Hardt and Talwar 2010, for the
l-infinity ball; the lattice form and its sampler are ours.)

Sampler. Draw k with P(k) proportional to prod_g (2 a_g k + 1) e^(-k/s), then z_g uniform on
{-a_g k, ..., a_g k}: a z with max_g ceil(|z_g|/a_g) = c gets sum over k >= c of e^(-k/s), proportional to
e^(-c/s). To draw k, propose the sum of d + 1 geometric variables, P(k) proportional to
C(k+d, d) e^(-k/s), and accept with probability prod_{i=1..d} (2 a_i k + 1) / (2 a_i (k + i)), one
Bernoulli draw of whole numbers for each i. An exact geometric is a discrete Laplace that is not negative.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.noise import secure, simulate

SAMPLER = f"l-infinity block noise on integers, from {secure.SAMPLER} and the operating system's random bits"
FARTHEST = 512.0
"""A geometric draw beyond this many scales is drawn again (probability e^-512), so that 64 bits suffice."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Draw = Callable[[FloatArray], IntArray]
Below = Callable[[IntArray], IntArray]


def secure_block(half_width: IntArray, block: IntArray, scale: FloatArray) -> IntArray:
    """Return exact block noise for every statistic, shape (G,), from OpenDP and the operating system.

    ``half_width`` (G,) holds a_g >= 1, ``block`` (G,) the number 0..B-1 of each statistic's block (every
    block has at least one), ``scale`` (B,) the blocks' s > 0.
    Raises UsageError when these are out of range or the noise could leave 64 bits.
    """
    return _block(half_width, block, scale, secure.discrete_laplace, secure.uniform_below)


def simulated_block(
    random: np.random.Generator, half_width: IntArray, block: IntArray, scale: FloatArray, laplace: Draw
) -> IntArray:
    """Return the same law from a seeded generator. NOT for releases."""
    return _block(half_width, block, scale, laplace, partial(simulate.uniform_below, random))


def acceptance_terms(k: IntArray, half_width: IntArray, place: IntArray) -> tuple[IntArray, IntArray]:
    """Return numerators 2 a k + 1 and denominators 2 a (k + i) of the Bernoulli draws, i = 1..d."""
    return 2 * half_width * k + 1, 2 * half_width * (k + place)


def _block(half_width: IntArray, block: IntArray, scale: FloatArray, laplace: Draw, below: Below) -> IntArray:
    size = np.bincount(block, minlength=len(scale)).astype(np.int64)
    _check(half_width, size, scale)
    order = np.argsort(block, kind="stable")
    first = np.cumsum(size) - size
    place = np.empty(len(block), dtype=np.int64)
    place[order] = np.arange(len(block)) - first[block[order]] + 1
    radius = _radii(half_width, block, scale, size, place, laplace, below)
    reach = half_width * radius[block]
    return below(2 * reach + 1) - reach


def _radii(
    half_width: IntArray,
    block: IntArray,
    scale: FloatArray,
    size: IntArray,
    place: IntArray,
    laplace: Draw,
    below: Below,
) -> IntArray:
    """One k for every block, shape (B,)."""
    radius = np.zeros(len(scale), dtype=np.int64)
    pending = np.ones(len(scale), dtype=bool)
    while pending.any():
        blocks = np.flatnonzero(pending)
        owner = np.repeat(np.arange(len(blocks)), size[blocks] + 1)
        parts = _geometric(scale[blocks][owner], laplace)
        proposal = np.zeros(len(scale), dtype=np.int64)
        np.add.at(proposal, blocks[owner], parts)
        member = np.flatnonzero(pending[block])
        k = proposal[block[member]]
        hit, out_of = acceptance_terms(k, half_width[member], place[member])
        failed = below(out_of) >= hit
        pending[:] = False
        pending[block[member[failed]]] = True
        accepted = np.setdiff1d(blocks, np.flatnonzero(pending), assume_unique=True)
        radius[accepted] = proposal[accepted]
    return radius


def _geometric(scale: FloatArray, laplace: Draw) -> IntArray:
    """P(k) proportional to e^(-k/scale) on k >= 0: a discrete Laplace draw, given that it is >= 0."""
    drawn = np.zeros(len(scale), dtype=np.int64)
    pending = np.arange(len(scale))
    while len(pending):
        value = laplace(scale[pending])
        accepted = (value >= 0) & (value <= FARTHEST * np.maximum(scale[pending], 1.0))
        drawn[pending[accepted]] = value[accepted]
        pending = pending[~accepted]
    return drawn


def _check(half_width: IntArray, size: IntArray, scale: FloatArray) -> None:
    if len(size) != len(scale) or int(size.min(initial=1)) < 1:
        raise UsageError("blocks are not numbered 0, 1, ... without gaps", got=f"{len(scale)} scales")
    if not bool(np.all(np.isfinite(scale) & (scale > 0))) or int(half_width.min(initial=1)) < 1:
        raise UsageError(
            "block noise is out of range", expected="scales above 0 and half widths of at least 1"
        )
    farthest = float(((size + 1) * FARTHEST * np.maximum(scale, 1.0) + size).max(initial=0.0))
    if 2.0 * float(half_width.max(initial=1)) * farthest >= 2.0**61:
        raise UsageError(
            "block noise of this size cannot be drawn exactly",
            got=f"half width {int(half_width.max())}, scale {float(scale.max()):.3g}",
            todo="ask for a larger epsilon or a larger speed_step",
        )
