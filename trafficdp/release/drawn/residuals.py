"""Is noise of the law that was priced? All draws of a release together, found wrong by chance once in 10^9.

A draw's rank in its law is uniform, and independent of all others (``noise.rank``); so for n draws the sums
of -log(rank) and of -log(1 - rank) each have the law Gamma(n, 1), and the signs of draws that are not 0 are
fair coins. **Theorem.** If every draw is of its law, ``plausible`` is false with probability at most
FALSE_ALARM: six tails of a sixth each. (Apart from the 10^-5 of ``noise.rank``, for which the tails leave
room.) One draw is a coordinate of Laplace or Gaussian noise, or a block of block noise.

**Power.** Laplace noise of f times its scale puts the first sum near f times its law: ``found_with(n, f)``
is the probability that this alone is found, so a lower bound. Halved noise is found with probability 0.99
from 177 draws on, noise of 0.9 times its scale from 6,957. Gaussian and block noise show it in fewer draws.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.special import bdtr, gammainc, gammaincc, gammainccinv, gammaincinv

from trafficdp.measurement.laws import Block, Gaussian, Laplace, Law
from trafficdp.measurement.support import FloatArray, IntArray
from trafficdp.noise.rank import Logs, block_rank, gaussian_rank, laplace_rank
from trafficdp.noise.simulate import generator, uniform_below

FALSE_ALARM = 5e-10
_TAIL = FALSE_ALARM / 6


def plausible(noise: Iterable[tuple[Law, IntArray]]) -> bool:
    """Return whether draws ``noise`` may be of their laws; nothing else is said of them."""
    # any uniform numbers that do not depend on the draws; the same each time, and so is the verdict
    random = generator(0)
    ranks, above, many = [], 0, 0
    for law, z in noise:
        drawn = _varies(law)
        if bool(np.any(z[~drawn])):
            return False
        own = z[drawn]
        count = np.full(law.blocks if isinstance(law, Block) else len(own), 2**53)
        uniform = (uniform_below(random, count).astype(np.float64) + 0.5) / 2.0**53
        ranks.append(_ranks(law, drawn, own, uniform))
        above += int(np.count_nonzero(own > 0))
        many += int(np.count_nonzero(own))
    outside, inside = (-np.concatenate([each[side] for each in ranks] or [np.zeros(0)]) for side in (0, 1))
    n = len(outside)
    tails = [float(tail(n, x.sum())) for x in (outside, inside) for tail in (gammainc, gammaincc) if n]
    tails += [float(bdtr(side, many, 0.5)) for side in (above, many - above) if many]
    return min(tails, default=1.0) >= _TAIL


def found_with(draws: int, factor: float) -> float:
    """Return at least how probably Laplace noise of ``factor`` times its scale is found in ``draws``."""
    if not draws:
        return 0.0
    few, much = gammaincinv(draws, _TAIL), gammainccinv(draws, _TAIL)
    return float(gammainc(draws, few / factor) if factor < 1 else gammaincc(draws, much / factor))


def draws_of(noise: Iterable[tuple[Law, IntArray]]) -> int:
    """Return how many draws there are: coordinates that vary, or blocks."""
    return sum(law.blocks if isinstance(law, Block) else int(_varies(law).sum()) for law, _ in noise)


def _varies(law: Law) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if isinstance(law, Block):
        return law.block >= 0
    return (law.scale if isinstance(law, Laplace) else law.sd) > 0


def _ranks(
    law: Law, drawn: np.ndarray[tuple[int], np.dtype[np.bool_]], z: IntArray, uniform: FloatArray
) -> Logs:
    if isinstance(law, Block):
        return block_rank(z, law.half_width[drawn], law.block[drawn], law.scale, uniform)
    if isinstance(law, Gaussian):
        return gaussian_rank(z, law.sd[drawn], uniform)
    return laplace_rank(z, law.scale[drawn], uniform)
