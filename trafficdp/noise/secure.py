"""Noise for releases: OpenDP's exact samplers on integers, fed by the operating system.

The only randomness of a release enters here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError

AT_ONCE = 1 << 14
"""Draws of a part, about a third of a second of a processor: draws are independent, so parts go at once."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def noisy(sampler_of: Callable[[float], Any], scale: FloatArray, sums: IntArray | None) -> IntArray:
    """Return ``sums`` (None: zeros) plus one independent draw for every ``scale`` above 0, in its shape.

    ``sampler_of`` makes OpenDP's measurement of one scale. The library draws outside Python's lock, so that
    threads share the work: the law is that of all in one call. Raises as ``require_scales``.
    """
    require_scales(scale)
    noise = np.zeros(scale.size, dtype=np.int64) if sums is None else sums.astype(np.int64).ravel()
    distinct, which = np.unique(scale.ravel(), return_inverse=True)
    order = np.argsort(which, kind="stable")
    sizes = np.bincount(which, minlength=len(distinct))
    ends = np.cumsum(sizes)
    for value, start, end in zip(distinct.tolist(), ends - sizes, ends, strict=True):
        if value > 0:
            here, sampler = order[start:end], sampler_of(value)
            parts = np.array_split(noise[here], -(-len(here) // AT_ONCE))
            if len(parts) == 1:
                noise[here] = sampler(parts[0])
            else:
                with ThreadPoolExecutor(os.cpu_count()) as threads:
                    noise[here] = np.concatenate(list(threads.map(sampler, parts)), dtype=np.int64)
    return noise.reshape(scale.shape)


SAMPLER = (
    "OpenDP make_laplace on 64-bit integers (exact discrete Laplace, P(z) proportional to exp(-|z|/scale))"
)
OPENDP_VERSION = version("opendp")
LARGEST_SCALE = float(2**55)
"""Above this a draw could leave 64 bits; the caller coarsens its lattice instead."""
MOST_DISTINCT_SCALES = 5_000
"""Building a sampler takes about 0.1 ms; more distinct scales than this are rounded up together."""


def discrete_laplace(scale: FloatArray, sums: IntArray | None = None) -> IntArray:
    """Return ``sums`` (None: zeros) plus one independent draw for every ``scale``; scale 0: none.

    P(z) is proportional to exp(-|z| / scale) on the integers, exactly for the float as given. OpenDP adds in
    big integers and saturates at 64 bits afterwards, which is post-processing.
    Raises UsageError for a negative, infinite or missing scale, or one above LARGEST_SCALE.
    """
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
    return noisy(lambda value: make_laplace(*space, scale=value), scale, sums)


def require_scales(scale: npt.NDArray[np.float64]) -> None:
    """Raise UsageError for a negative, infinite or missing scale, or one above LARGEST_SCALE."""
    valid = np.isfinite(scale) & (scale >= 0) & (scale <= LARGEST_SCALE)
    if not bool(valid.all()):
        raise UsageError("noise scale is out of range", expected="0 <= scale <= 2^55")


def group_scales(scale: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return scales >= the given ones that take few distinct values, so that drawing stays fast.

    Nothing changes up to MOST_DISTINCT_SCALES distinct values; beyond, scales are rounded up to 10
    significant bits (at most 0.2 % more noise), never down.
    """
    if len(np.unique(scale)) <= MOST_DISTINCT_SCALES:
        return scale
    mantissa, exponent = np.frexp(scale)
    rounded: npt.NDArray[np.float64] = np.ldexp(np.ceil(mantissa * 1024) / 1024, exponent)
    return rounded


def bits(size: int) -> npt.NDArray[np.int64]:
    """Return ``size`` independent uniform integers of 62 bits from the operating system."""
    words = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
    return (words >> np.uint64(2)).astype(np.int64)


def new_token() -> str:
    """Return 256 random bits of the operating system as 64 hexadecimal digits: a name that nobody guesses."""
    return os.urandom(32).hex()


def uniform_below(count: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return independent uniform integers in 0..count-1, one for every entry, exactly (by rejection).

    Raises UsageError unless every count is from 1 to 2^61.
    """
    flat = np.asarray(count, dtype=np.int64).ravel()
    if flat.size and not (int(flat.min()) >= 1 and int(flat.max()) <= 2**61):
        raise UsageError("a range to draw from is out of range", expected="1 to 2^61 whole numbers")
    result = np.zeros(flat.shape, dtype=np.int64)
    usable = 2**62 // np.maximum(flat, 1) * flat
    left = np.arange(len(flat))
    while len(left):
        word = bits(len(left))
        result[left] = word % flat[left]
        left = left[word >= usable[left]]
    return result.reshape(np.shape(count))
