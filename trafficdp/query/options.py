"""The options of a priced question: how much it may spend, and what is left out as too thin."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from trafficdp.config.reading import exact_number
from trafficdp.errors import TrafficdpError
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, PureDP, decimal_text
from trafficdp.query.dialect import shown
from trafficdp.query.problems import Problems

LARGEST_MIN_VEHICLES = 10**9
_EPSILON = "a number above 0, at most 1,000,000, with at most 12 decimals"


@dataclass(frozen=True, slots=True)
class Options:
    """What the clause says. None: as the configuration has it.

    ``speed_bound`` is in the configuration's unit of speed. ``force`` releases what says too little.
    """

    epsilon: PureDP
    min_vehicles: int | None = None
    interval_level: Fraction | None = None
    speed_bound: Fraction | None = None
    force: bool = False

    def to_sql(self) -> str:
        """Return the clause's OPTIONS (...), in one spelling."""
        parts = [f"epsilon = {decimal_text(self.epsilon.pico)}"]
        if self.min_vehicles is not None:
            parts.append(f"min_vehicles = {self.min_vehicles}")
        if self.interval_level is not None:
            parts.append(f"interval_level = {_decimal(self.interval_level)}")
        if self.speed_bound is not None:
            parts.append(f"speed_bound = {_decimal(self.speed_bound)}")
        if self.force:
            parts.append("force = TRUE")
        return f"OPTIONS ({', '.join(parts)})"


def read_options(
    pairs: tuple[tuple[str, str], ...], default: PureDP, problems: Problems, *, needed: bool
) -> Options:
    """Return the options that ``pairs`` of (name, value) say; epsilon is ``default`` if it is wrong.

    ``needed`` says whether epsilon must be given.
    """
    options = Options(default)
    seen: set[str] = set()
    for written, value in pairs:
        name = _ALIASES.get(written.lower(), written.lower())
        if name in seen:
            problems.add("an option is given twice", shown(name), "each once")
            continue
        seen.add(name)
        if name in _REFUSED:
            problems.add(f"there is no option {name}", None, _REFUSED[name], same=True)
        elif name == "privacy_unit_column":
            if value.lower() != "vehicle":
                problems.add("the privacy unit is the vehicle", shown(value), "privacy_unit_column = vehicle")
        elif name == "delta":
            if exact_number(value) != 0:
                problems.add("the guarantee is pure epsilon", None, "no delta", same=True)
        elif name in _READERS:
            changed = _READERS[name](options, value)
            if changed is None:
                problems.add(f"option {name} is not valid", None, _EXPECTED[name], same=name == "epsilon")
            else:
                options = changed
        else:
            near = difflib.get_close_matches(name, _READERS, n=1)
            problems.add("there is no such option", shown(name), near[0] if near else ", ".join(_READERS))
    if needed and "epsilon" not in seen:
        problems.add("option epsilon is missing", None, _EPSILON, same=True)
    return options


def _decimal(value: Fraction) -> str:
    return decimal_text(int(value * PICO))


def _epsilon(options: Options, text: str) -> Options | None:
    number = exact_number(text)
    if number is None or number <= 0 or number * PICO > LARGEST_LOSS:
        return None
    try:
        return replace(options, epsilon=PureDP.of(number))
    except TrafficdpError:
        return None


def _min_vehicles(options: Options, text: str) -> Options | None:
    number = exact_number(text)
    if number is None or number.denominator != 1 or not 1 <= number <= LARGEST_MIN_VEHICLES:
        return None
    return replace(options, min_vehicles=int(number))


def _interval_level(options: Options, text: str) -> Options | None:
    number = exact_number(text)
    return None if number is None or not 0 < number < 1 else replace(options, interval_level=number)


def _speed_bound(options: Options, text: str) -> Options | None:
    number = exact_number(text)
    return None if number is None or number <= 0 else replace(options, speed_bound=number)


def _force(options: Options, text: str) -> Options | None:
    word = text.lower()
    return replace(options, force=word == "true") if word in ("true", "false") else None


_READERS: dict[str, Callable[[Options, str], Options | None]] = {
    "epsilon": _epsilon,
    "min_vehicles": _min_vehicles,
    "interval_level": _interval_level,
    "speed_bound": _speed_bound,
    "force": _force,
}
_EXPECTED = {
    "epsilon": _EPSILON,
    "min_vehicles": "an integer from 1",
    "interval_level": "a number between 0 and 1",
    "speed_bound": "a speed above 0, a multiple of the configured speed_step",
    "force": "TRUE or FALSE",
}
_ALIASES = {"min_privacy_units_per_group": "min_vehicles", "confidence_level": "interval_level"}
_REFUSED = {
    "max_groups_contributed": "nothing: every vehicle pays for the hexagons that it was in, exactly",
    "max_rows_contributed": "nothing: every vehicle pays for its own records, exactly",
    "group_selection_strategy": "nothing: which hexagons were visited is public here",
    "contribution_bounds_per_group": "speed_bound = ...: speeds are clipped to 0 .. speed_bound",
    "contribution_bounds_per_row": "speed_bound = ...: speeds are clipped to 0 .. speed_bound",
}
