"""Speeds as they were reported to whole steps of a bound: the one clip of batch and stream.

A speed of x hundredths of its source's unit is, in steps of the bound, x * n / d exactly, with
n / d = (source unit in the bound's unit) / 100 / step. It becomes the integer

    (2 * c + d) // (2 * d),   c = min(max(x, 0) * n, top),   top = d * steps:

first clipped to [0, U], then rounded to the nearest step, halves up, so at most ``steps``. All units
share the denominator d. 64-bit integers suffice because x is first cut to cap = ceil(top / n): for x >= cap
both x * n and cap * n are at least top, so c is top either way, and cap * n < top + n.
"""

from __future__ import annotations

from math import lcm

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.errors import ConfigError, StoreDamagedError
from trafficdp.model import ContributionBound, SpeedUnit

IntArray = npt.NDArray[np.int64]
_UNITS = [unit.value for unit in SpeedUnit]


class Clip:
    """The clip to one bound.

    Raises ConfigError when the step is so fine or so odd a fraction that 64 bits do not hold the arithmetic.
    """

    def __init__(self, bound: ContributionBound) -> None:
        ratios = [unit.factor_to(bound.unit) / 100 / bound.step for unit in SpeedUnit]
        self._denominator = lcm(*(ratio.denominator for ratio in ratios))
        self._top = self._denominator * bound.steps
        numerators = [int(ratio * self._denominator) for ratio in ratios]
        if max(2 * self._top + self._denominator, self._top + max(numerators)) >= 1 << 63:
            raise ConfigError(
                "speed step cannot be computed with exactly in 64 bits",
                got=f"speed_step={bound.step}",
                expected="a step with few digits, such as 0.1",
            )
        self._numerator = np.array(numerators, dtype=np.int64)
        self._cap = np.array([-(-self._top // numerator) for numerator in numerators], dtype=np.int64)

    def steps_of(self, centi: pa.Array | pa.ChunkedArray, unit: pa.Array | pa.ChunkedArray) -> IntArray:
        """Return the steps, 0 to ``bound.steps``, of speeds in hundredths of ``unit``, shape (n,) each.

        Raises StoreDamagedError for a unit that is none of SpeedUnit.
        """
        if isinstance(unit, pa.ChunkedArray):
            unit = pa.concat_arrays([pc.cast(chunk, pa.string()) for chunk in unit.chunks])
        encoded = unit if pa.types.is_dictionary(unit.type) else unit.dictionary_encode()
        known = pc.index_in(pc.cast(encoded.dictionary, pa.string()), value_set=pa.array(_UNITS))
        code = known.take(encoded.indices)
        if code.null_count:
            raise StoreDamagedError(
                "unknown speed unit of a fix",
                expected=", ".join(SpeedUnit),
                todo="restore the newest backup of the store",
            )
        which = code.to_numpy()
        if len(which) and which.min() == which.max():
            # of one unit, as nearly always: one number for all
            which = which[0]
        steps = np.minimum(np.maximum(centi.to_numpy(), 0), self._cap[which])
        steps *= self._numerator[which]
        np.minimum(steps, self._top, out=steps)
        steps *= 2
        steps += self._denominator
        steps //= 2 * self._denominator
        return np.asarray(steps, dtype=np.int64)
