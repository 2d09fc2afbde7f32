"""What the caller knows of the mechanism of a statistic, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.model import SpeedUnit, Statistic
from trafficdp.privacy.disclosure import Calibration, MechanismStated, SkillStated, WorstBias
from trafficdp.privacy.release import DECIMALS


@dataclass(frozen=True)
class MechanismFacts:
    """How one statistic was made noisy. Numbers are in the bound's unit, to the statistic's power.

    ``noise_scale`` holds the expected absolute noise of every bin (Laplace: its scale), shape (G,): NaN where
    withheld, 0 where no noise was needed. ``tolerance`` weighs the statistic against the others when noise
    is shared out; ``share`` is its part of epsilon, in [0, 1], None when statistics are priced jointly.
    ``worst_case_bias`` includes that of rounding to the lattice. ``interval_basis`` says what the intervals
    rest on, ``unenforced`` names the theorem where what one vehicle moves is only claimed, ``calibration``
    says how intervals without a theorem did, ``skill`` how much is said beside one number for the city (None:
    not computed).
    """

    statistic: Statistic
    mechanism: str
    sensitivity: str
    noise_scale: npt.NDArray[np.float64]
    worst_case_bias: float
    tolerance: float | None
    share: float | None
    library: str
    sampler: str = "OpenDP make_laplace (discrete Laplace on integers)"
    distribution: str = "discrete Laplace on whole numbers"
    citation: str | None = None
    interval_basis: str = "exact tail of the discrete Laplace noise, widened by the worst-case bias"
    idealised: bool = False
    unenforced: str | None = None
    interval_kind: str = "guaranteed"
    calibration: Calibration | None = None
    skill: SkillStated | None = None

    def stated(self, unit: SpeedUnit, display_unit: SpeedUnit) -> MechanismStated:
        """Return the manifest's form in display units; scales are those of the published column."""
        noisy = self.noise_scale[self.noise_scale > 0]
        factor = _factor(self.statistic, unit, display_unit)
        low, high = (
            _outward(float(each), factor) if len(noisy) else None
            for each in (noisy.min(initial=np.inf), noisy.max(initial=0.0))
        )
        both = vars(self).keys() & MechanismStated.__dataclass_fields__.keys()
        stated: dict[str, Any] = {name: getattr(self, name) for name in both} | {
            "statistic": self.statistic.column(display_unit),
            "description": self.statistic.description,
            "unit": self.statistic.unit(display_unit),
            "noise_scale_min": low,
            "noise_scale_max": high,
            "interval_kind": str(self.interval_kind),
        }
        return MechanismStated(**stated)

    def bias_stated(self, unit: SpeedUnit, display_unit: SpeedUnit) -> WorstBias:
        """Return the largest bias over all data, in display units, rounded up."""
        return WorstBias(
            statistic=self.statistic.column(display_unit),
            unit=self.statistic.unit(display_unit),
            bias=_outward(self.worst_case_bias, _factor(self.statistic, unit, display_unit)),
        )


def _factor(statistic: Statistic, unit: SpeedUnit, display_unit: SpeedUnit) -> float:
    factor: Fraction = unit.factor_to(display_unit)
    return float(factor**statistic.power)


def _outward(value: float, factor: float) -> float:
    # the published table's own expression, so that both say the same number
    unit = 10.0**DECIMALS
    return float(np.ceil(np.float64(value) * factor * unit) / unit)
