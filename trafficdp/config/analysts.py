"""The ``[[analysts]]`` of the configuration: who may ask priced questions, and for how much."""

from __future__ import annotations

from trafficdp.config.reading import Table
from trafficdp.errors import ConfigError
from trafficdp.privacy.analyst import Analyst
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, PureDP

KEYS = ("name", "epsilon_per_vehicle")
_EPSILON = "a number above 0, at most 1,000,000, with at most 12 decimals, such as 2"


def read_analysts(content: object) -> tuple[Analyst, ...]:
    """Return the roles, in order; raise ConfigError, naming the key, for a wrong one or a name used twice."""
    if not isinstance(content, list):
        raise ConfigError(
            "[[analysts]] is not a list of tables", expected="[[analysts]] with name and epsilon_per_vehicle"
        )
    found: dict[str, Analyst] = {}
    for item in content:
        table = Table(item, "[[analysts]] ", KEYS)
        name = table.text("name", "a name such as newsroom")
        number = table.positive("epsilon_per_vehicle", _EPSILON)
        if number * PICO > LARGEST_LOSS:
            raise table.wrong("epsilon_per_vehicle", _EPSILON)
        if name.casefold() in {each.casefold() for each in found}:
            raise table.wrong("name", "another name for every analyst", got=f"{name} twice")
        found[name] = Analyst(name, PureDP.of(number))
    return tuple(found.values())
