"""What the caller states about software, sources and mechanisms of a release."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp._validate import one_of
from trafficdp.export.files.columns import unit_label
from trafficdp.model.source import UnitPeriod
from trafficdp.model.speed_unit import SpeedUnit
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.published import DECIMALS


@dataclass(frozen=True, slots=True)
class SoftwareFacts:
    """Name and version of what made the release; ``commit`` only where it is known."""

    name: str
    version: str
    commit: str | None = None

    def as_json(self) -> dict[str, object]:
        """Return the manifest's form; without a commit the key is left out."""
        facts: dict[str, object] = {"name": self.name, "version": self.version}
        return facts if self.commit is None else {**facts, "commit": self.commit}


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """One source of records: declared units, cleaning rules in words, and where its speeds come from.

    ``speed`` is "reported" (by the device), "derived" (from the vehicle's neighbouring fixes) or "mixed".
    ``unit_check`` is what the comparison of speeds with distances could do to a file: "warn" the curator,
    "stop" the file, or, from file to file, "warn or stop". What it found follows from speeds and is not here.
    """

    name: str
    format: str
    units: tuple[UnitPeriod, ...]
    cleaning: tuple[str, ...]
    speed: str
    unit_check: str

    def __post_init__(self) -> None:
        one_of(("reported", "derived", "mixed"), speed=self.speed)
        one_of(("warn", "stop", "warn or stop"), unit_check=self.unit_check)

    def as_json(self) -> dict[str, object]:
        """Return the manifest's form."""
        return {
            "name": self.name,
            "format": self.format,
            "units": [
                {
                    "unit": period.unit.label,
                    "first": None if period.first is None else period.first.isoformat(),
                    "last": None if period.last is None else period.last.isoformat(),
                }
                for period in self.units
            ],
            "cleaning": list(self.cleaning),
            "speed": self.speed,
            "unit_check": self.unit_check,
        }


@dataclass(frozen=True)
class MechanismFacts:
    """How one statistic was made noisy. Numbers are in the bound's unit, to the statistic's power.

    ``noise_scale`` holds the expected absolute noise of every bin (Laplace: its scale), shape (G,): NaN where
    withheld, 0 where no noise was needed. ``tolerance`` weighs the statistic against the others when noise
    is shared out; ``share`` is its part of epsilon, in [0, 1], None when statistics are priced jointly.
    ``worst_case_bias`` includes that of rounding to the lattice. ``interval_basis`` says what the intervals
    rest on.
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
    distribution: str = "discrete Laplace on integer multiples of a lattice spacing"
    citation: str | None = None
    interval_basis: str = "exact tail of the discrete Laplace noise, widened by the worst-case bias"
    idealised: bool = False

    def as_json(self, unit: SpeedUnit, display_unit: SpeedUnit) -> dict[str, object]:
        """Return the manifest's form in display units; scales are those of the published column."""
        noisy = self.noise_scale[self.noise_scale > 0]
        scales = (float(noisy.min()), float(noisy.max())) if len(noisy) else (None, None)
        factor = _factor(self.statistic, unit, display_unit)
        return {
            "statistic": self.statistic.column(display_unit),
            "description": self.statistic.description,
            "unit": unit_label(self.statistic, display_unit),
            "mechanism": self.mechanism,
            "sensitivity": self.sensitivity,
            "distribution": self.distribution,
            "noise_scale_min": None if scales[0] is None else _outward(scales[0], factor),
            "noise_scale_max": None if scales[1] is None else _outward(scales[1], factor),
            "sampler": self.sampler,
            "library": self.library,
            "tolerance": self.tolerance,
            "share": self.share,
            "citation": self.citation,
            "interval_basis": self.interval_basis,
            "idealised": self.idealised,
        }

    def bias_as_json(self, unit: SpeedUnit, display_unit: SpeedUnit) -> dict[str, object]:
        """Return the largest bias over all data, in display units, rounded up."""
        return {
            "statistic": self.statistic.column(display_unit),
            "unit": unit_label(self.statistic, display_unit),
            "bias": _outward(self.worst_case_bias, _factor(self.statistic, unit, display_unit)),
        }


def _factor(statistic: Statistic, unit: SpeedUnit, display_unit: SpeedUnit) -> float:
    factor: Fraction = unit.factor_to(display_unit)
    return float(factor**statistic.power)


def _outward(value: float, factor: float) -> float:
    # the published table's own expression, so that both say the same number
    unit = 10.0**DECIMALS
    return float(np.ceil(np.float64(value) * factor * unit) / unit)
