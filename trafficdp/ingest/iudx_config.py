"""The configuration of the IUDX differential privacy pipeline, as our settings.

Several of its keys look like ours and mean something else. None is taken over in silence: every key that
changed meaning, or has no counterpart, comes back as a message to show to whoever imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from trafficdp.errors import ConfigError
from trafficdp.model import SlotKind

_SPEED_QUERIES = {"mean": ["mean"]}


@dataclass(frozen=True)
class IudxSettings:
    """``settings``: our names and plain values, only what can be taken over. ``messages``: one sentence
    for every key whose meaning changed or that was left out."""

    settings: dict[str, object]
    messages: list[str]


def import_iudx_config(config: Mapping[str, object]) -> IudxSettings:
    """Return our settings for a configuration of the India Urban Data Exchange, read from its JSON.

    Keys may be at the top level or one level down (``spatial_generalize``, ``temporal_generalize``,
    ``differential_privacy``). Settings returned: ``resolution``, ``slot_kind``, ``speed_bound``,
    ``statistics`` and ``columns`` (vehicle, time, position, speed). The privacy budget, the speed unit
    and the neighbouring relation are not copied: whoever configures must choose them.

    Raises ConfigError when a value is not of its key's type.
    """
    keys = _flat(config)
    settings: dict[str, object] = {}
    messages: list[str] = []
    _space(keys, settings)
    _time(keys, settings, messages)
    _bounds(keys, settings, messages)
    _privacy(keys, settings, messages)
    _columns(keys, settings)
    messages.append(
        "The speed unit, the study area, the period and the neighbouring relation are not in an IUDX "
        "configuration: choose them."
    )
    return IudxSettings(settings, messages)


def _flat(config: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= {str(inner): item for inner, item in value.items()}
        else:
            flat[str(key)] = value
    return flat


def _number(keys: Mapping[str, object], name: str) -> float | None:
    value = keys.get(name)
    if value is None:
        return None
    # an integer may be beyond every float
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < sys.float_info.max:
        raise ConfigError(f"{name} of the IUDX configuration is not a number", got=repr(value))
    return value


def _space(keys: Mapping[str, object], settings: dict[str, object]) -> None:
    resolution = _number(keys, "h3_resolution")
    if resolution is not None:
        if resolution not in range(16):
            raise ConfigError(
                "h3_resolution of the IUDX configuration is out of range", got=resolution, expected="0 to 15"
            )
        settings["resolution"] = int(resolution)


def _time(keys: Mapping[str, object], settings: dict[str, object], messages: list[str]) -> None:
    minutes = _number(keys, "timeslot_resolution")
    settings["slot_kind"] = SlotKind.HOUR_OF_DAY.value
    if minutes is not None and minutes != 60:
        messages.append(
            f"timeslot_resolution = {minutes:g} minutes has no counterpart: slots are clock hours or longer; "
            "slot_kind is set to hour_of_day."
        )
    start, end = _number(keys, "start_time"), _number(keys, "end_time")
    if start is not None or end is not None:
        first, last = 0 if start is None else start, 23 if end is None else end
        messages.append(
            f"start_time and end_time are inclusive hours there: {first:g} to {last:g} means until "
            f"{last:g}:59. Here every hour of the day has a slot of its own; to leave hours out, declare "
            "day parts, or drop the slots after the release."
        )


def _bounds(keys: Mapping[str, object], settings: dict[str, object], messages: list[str]) -> None:
    low, high = _number(keys, "global_min_value"), _number(keys, "global_max_value")
    if high is not None:
        settings["speed_bound"] = high
        messages.append(
            "global_max_value becomes speed_bound: speeds above it are clipped to it, never dropped. It must "
            "be a round number known beforehand, not the largest speed in the data."
        )
    if low:
        messages.append(
            f"global_min_value = {low:g} is left out: the lower bound is always 0 here, so noise is "
            "calibrated to the whole of [0, speed_bound]."
        )


def _privacy(keys: Mapping[str, object], settings: dict[str, object], messages: list[str]) -> None:
    epsilon = _number(keys, "dp_epsilon")
    if epsilon is not None:
        messages.append(
            f"dp_epsilon = {epsilon:g} is left out: there it holds for each cell alone and is not composed, "
            "so a vehicle seen in 50 cells loses up to 50 times as much. Here epsilon is the whole loss of a "
            "vehicle in a release, and the budget that of all releases: choose both."
        )
    if "dp_epsilon_step" in keys:
        messages.append("dp_epsilon_step is left out: plan shows which epsilon would buy which error.")
    for name in ("filter_event_occurences", "filter_event_occurrences"):
        least = _number(keys, name)
        if least is not None:
            messages.append(
                f"{name} = {least:g} is left out: there it is an exact filter on vehicles a day, decided by "
                "the data without noise. Here min_vehicles withholds bins by a count that is declared public."
            )
    query = keys.get("dp_query")
    if query in _SPEED_QUERIES:
        settings["statistics"] = _SPEED_QUERIES[str(query)]
        messages.append(
            "dp_query = mean: the noise there is scaled to the vehicle with most records by a count that is "
            "treated as public without saying so. Here the relation and its assumptions are chosen and "
            "printed on every release."
        )
    elif query is not None:
        messages.append(f"dp_query = {query} is left out: means and variances of speed are released here.")


def _columns(keys: Mapping[str, object], settings: dict[str, object]) -> None:
    names = {
        "vehicle": "filter_attribute",
        "time": "temporal_attribute",
        "position": "spatial_attribute",
        "speed": "dp_output_attribute",
    }
    columns = {ours: keys[theirs] for ours, theirs in names.items() if isinstance(keys.get(theirs), str)}
    if columns:
        settings["columns"] = columns
