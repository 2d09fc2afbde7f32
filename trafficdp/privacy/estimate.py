"""One statistic's noisy numbers over all bins, what is said of each, and when they are too inaccurate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.model.speed import MOST_SOURCES, Statistic

# Columns that a published statistic carries so that anyone with the counts can price it again.


@dataclass(frozen=True, slots=True)
class NoiseColumn:
    """One column a statistic, published as ``STEM_NAME``, exact to the last bit.

    ``withheld`` is what whole numbers hold where the bin is withheld (an integer column has no null);
    None for a column of floats, which is null there.
    """

    name: str
    unit: str | None
    description: str
    withheld: int | None = None


ROUNDS = 6
"""The most rounds of residuals that a map of a declared grid has."""
KNOWN_COLUMNS = tuple(f"known_{each}" for each in range(1, MOST_SOURCES + 1))
NOISE_COLUMNS = {
    column.name: column
    for column in (
        NoiseColumn("lattice_scale", "lattice steps", "exact scale of the noise as it was drawn"),
        NoiseColumn("product_scale", "lattice steps", "exact scale of the noise of the sum of x (U - x)"),
        NoiseColumn("product_block", None, "number of the block of its sum of x (U - x); -1 for none", -1),
        NoiseColumn(
            "product_half_width", "lattice steps", "half width of the noise of that sum; 0 for none", 0
        ),
        NoiseColumn("product_shift", None, "that sum is multiplied by 2 to this power before noise", 0),
        NoiseColumn("block_scale", None, "exact scale s of the noise of its block; 0 for a constant"),
        NoiseColumn("block", None, "number of its block, whose noise is drawn together; -1 for none", -1),
        NoiseColumn("half_width", "lattice steps", "half width a of the noise in its block; 0 for none", 0),
        NoiseColumn("shift", None, "the exact integer is multiplied by 2 to this power before noise", 0),
        NoiseColumn("noise_terms", None, "draws of that scale whose sum is the noise", 0),
        NoiseColumn("rho", None, "rho that the mechanism was given for all bins together, exactly"),
        NoiseColumn("epsilon", None, "epsilon that the mechanism was given in the bin, exactly"),
        NoiseColumn("rank_low", "vehicles", "the vehicle, from the slowest, whose speed is the lower end", 0),
        NoiseColumn(
            "rank_high", "vehicles", "the vehicle, from the slowest, whose speed is the upper end", 0
        ),
        NoiseColumn("fleet_fast", "grains", "noisy number of vehicles, counted as far as they are fast", 0),
        NoiseColumn("fleet_slow", "grains", "noisy number of vehicles, counted as far as they are slow", 0),
        NoiseColumn("city_vehicles", "vehicles", "vehicles in all, by these two"),
        NoiseColumn("city_centre", "speed bound's unit", "speed of the city, by these two"),
        NoiseColumn(
            "city_clip_bound", "speed bound's unit", "what a vehicle's first residuals are clipped to"
        ),
        NoiseColumn("city_power", None, "power of a vehicle's numbers of records in its weights"),
        *(
            NoiseColumn(name, None, f"speed in the hexagon by source {each} of knowledge, in its own unit")
            for each, name in enumerate(KNOWN_COLUMNS, 1)
        ),
        NoiseColumn("weight", "grains", "noisy weight of the hexagon", 0),
        *(
            column
            for each in range(1, ROUNDS + 1)
            for column in (
                NoiseColumn(f"residual_{each}", "grains", f"noisy residual of the hexagon, round {each}", 0),
                NoiseColumn(f"map_{each}", "speed bound's unit", f"the map that round {each} asked about"),
            )
        ),
        *(
            column
            for each in ("vehicles", "records")
            for column in (
                NoiseColumn(
                    f"{each}_length", "grains", f"noisy: how long vehicles' vectors of {each} are", 0
                ),
                NoiseColumn(f"{each}_clip_bound", each, "what those vectors are clipped to, by that"),
                NoiseColumn(f"{each}_answer", "grains", f"noisy number of {each} of the bin", 0),
                NoiseColumn(each, each, f"number of {each} that this answer makes likely"),
                NoiseColumn(f"{each}_low", each, f"lower end of the noise about the number of {each}"),
                NoiseColumn(f"{each}_high", each, f"upper end of the noise about the number of {each}"),
            )
        ),
        NoiseColumn(
            "length", "grains", "noisy number that says how far speeds of a vehicle lie from the map", 0
        ),
        NoiseColumn("spread", "grains", "noisy number that says how much speeds vary in the city", 0),
    )
}
"""All that there are; a calibrated mechanism uses some of them (``Estimate.noise``)."""


# One statistic's noisy numbers over all bins, and what is said of each.


class BinStatus(StrEnum):
    """What became of a bin, or of one statistic of it.

    RELEASED: a noisy number with its interval.
    CONSTANT: the statistic can only be one number (the variance of one record is 0), at no cost.
    WITHHELD: no number, because fewer vehicles than ``min_vehicles`` were seen.
    UNINFORMATIVE: a number whose expected error is more than an eighth of the range; where there is a
    posterior of means, one whose 80 % interval is more than nine tenths of that of one city-wide average.
    """

    RELEASED = "released"
    CONSTANT = "constant"
    WITHHELD = "withheld"
    UNINFORMATIVE = "uninformative"


class IntervalKind(StrEnum):
    """What an interval is.

    GUARANTEED: a theorem says how often it holds the statistic of its bin, whatever the speeds are.
    CALIBRATED: by a posterior, right as far as cities are like those that it was tried on. No theorem.
    RANKS: a theorem says between which vehicles' speeds the number lies, ``rank_low`` and ``rank_high`` among
    ``Estimate.noise``. Its ends in speed are those of the whole range.
    """

    GUARANTEED = "guaranteed"
    CALIBRATED = "calibrated"
    RANKS = "ranks"


POSTERIOR_ENDS = {
    "low_50": "lower end of the interval that holds the truth with a chance of 50 %, by the posterior",
    "high_50": "upper end of that interval",
    "low_80": "the same with a chance of 80 %",
    "high_80": "upper end of that interval",
}
POSTERIOR_SPEEDS = POSTERIOR_ENDS | {
    "city": "the city's speed that the chances compare with, by noisy answers",
    "scheduled": "scheduled speed by the timetable, ways between stops taken as straight; empty without one",
}
POSTERIOR_SHARES = {
    "slower_chance": "chance that it is slower than the city's speed by a fifth of that, by the posterior",
    "faster_chance": "chance that it is faster than the city's speed by a fifth of that, by the posterior",
    "of_scheduled": "the mean over the scheduled speed: below 1 it is slower than the timetable",
    "of_scheduled_low": "lower end of the 95 % interval of that, by the posterior",
    "of_scheduled_high": "upper end of that interval",
}
"""What a posterior says of a mean beside its value, its interval and its expected error; the scheduled speed
and shares of it where a timetable is known. Of a variance only POSTERIOR_ENDS."""


ARRAYS = ("value", "low", "high", "noise_scale", "expected_error", "status")
"""The fields of an Estimate that every one has, an array each."""


@dataclass(frozen=True)
class Estimate:
    """One statistic over all bins of a release; arrays of shape (G,), in ``bound.unit`` to its power.

    NaN where the bin is withheld. ``value`` lies in [0, U] (variance: [0, mean*(U - mean)]); ``low`` and
    ``high`` hold the sample statistic with at least the release's interval level. ``noise_scale`` is
    the expected absolute noise before clamping (Laplace noise: its scale), also NaN where the mechanism has
    none that is public. ``noise`` holds, by their names in NOISE_COLUMNS, the columns that say exactly how
    the noise was drawn (its scale, a mechanism's epsilon): with them anyone who has the
    counts can compute every vehicle's loss. ``expected_error`` is the worst case over
    the truth of the mean absolute error of the noisy number clamped to its range, rounding of
    speeds included; keeping a variance below mean*(U - mean) helps where the mean is good, and can add at
    most U times the expected error of the mean. Where there is a posterior, ``expected_error`` is by it, and
    ``posterior`` holds what else it says, by the names in POSTERIOR_SPEEDS and POSTERIOR_SHARES. ``status``
    holds BinStatus values.
    """

    statistic: Statistic
    value: FloatArray
    low: FloatArray
    high: FloatArray
    noise_scale: FloatArray
    expected_error: FloatArray
    status: npt.NDArray[np.object_]
    noise: Mapping[str, npt.NDArray[Any]]
    posterior: Mapping[str, FloatArray] = field(default_factory=dict)

    def of(self, rows: IntArray) -> Estimate:
        """Return the estimate of the bins at positions ``rows``, in that order; a position may repeat."""
        taken = {name: getattr(self, name)[rows] for name in ARRAYS}
        noise, posterior = (
            {name: own[rows] for name, own in each.items()} for each in (self.noise, self.posterior)
        )
        return replace(self, **taken, noise=noise, posterior=posterior)


# By what it is decided whether a release is too inaccurate.


class RefusalRule(StrEnum):
    """The criterion by which a release may be refused as too inaccurate.

    SKILL for maps, INTERVAL for answers and maps of one bin, RANK for quantiles: see ``allocation``.
    """

    SKILL = "skill"
    INTERVAL = "interval"
    RANK = "rank"


REFUSAL_RULES = {
    RefusalRule.SKILL: "refused when the expected error in simulated cities, as a share of that of "
    "one city-wide average, is above the threshold, or when the map is less accurate than that "
    "average in more than 10 % of draws",
    RefusalRule.INTERVAL: "refused when the interval of the median bin can span the whole range: a "
    "share of it that reaches the threshold",
    RefusalRule.RANK: "refused when the interval of the median bin spans a larger share of its "
    "vehicles than the threshold",
}
"""What a manifest says of a rule, about its threshold and value."""
