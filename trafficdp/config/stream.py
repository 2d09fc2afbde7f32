"""The ``[stream]`` table of the configuration: how a map is published as its fixes arrive."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from trafficdp.config.reading import Table
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, PureDP

STREAM_KEYS = ("epsilon", "publish_every", "lateness", "fixes_per_vehicle", "fixes_per_step")
_EPSILON = "a number above 0, at most 1,000,000, with at most 12 decimals, such as 2"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How a stream is published. Times in minutes of stream time.

    ``epsilon`` None: that of [privacy]. ``fixes_per_vehicle``: how many fixes every vehicle is sure to have
    taken over the whole period. ``fixes_per_step``: the most of one vehicle that count in one step; 0: all.
    """

    epsilon: PureDP | None
    publish_every: int
    lateness: int
    fixes_per_vehicle: int
    fixes_per_step: int


def read_stream(settings: Table) -> StreamSettings:
    """Return the settings of a stream; raise ConfigError, naming the key, for a wrong one."""
    epsilon = settings.positive("epsilon", _EPSILON) if settings.has("epsilon") else None
    if epsilon is not None and epsilon * PICO > Fraction(LARGEST_LOSS):
        raise settings.wrong("epsilon", _EPSILON)
    return StreamSettings(
        epsilon=None if epsilon is None else PureDP.of(epsilon),
        publish_every=settings.integer("publish_every", 1, 10_080),
        lateness=settings.integer("lateness", 0, 10_080, 5),
        fixes_per_vehicle=settings.integer("fixes_per_vehicle", 1, 10**9),
        fixes_per_step=settings.integer("fixes_per_step", 0, 10**9, 0),
    )
