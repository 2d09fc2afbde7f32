"""The ``[stream]`` table of the configuration: how a map is published as its fixes arrive."""

from __future__ import annotations

from typing import Annotated

from trafficdp.config.table import Table, loss, whole
from trafficdp.privacy.loss import PureDP


class StreamSettings(Table):
    """How a stream is published. Times in minutes of stream time.

    ``epsilon`` None: that of [privacy]. ``fixes_per_vehicle``: how many fixes every vehicle is sure to have
    taken over the whole period. ``fixes_per_step``: the most of one vehicle that count in one step; 0: all.
    """

    epsilon: Annotated[PureDP | None, loss("2")] = None
    publish_every: Annotated[int, whole(1, 10_080)]
    lateness: Annotated[int, whole(0, 10_080)] = 5
    fixes_per_vehicle: Annotated[int, whole(1, 10**9)]
    fixes_per_step: Annotated[int, whole(0, 10**9)] = 0
