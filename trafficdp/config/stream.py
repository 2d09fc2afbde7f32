"""The ``[stream]`` table of the configuration: how a map is published as its records arrive."""

from __future__ import annotations

from typing import Annotated

from trafficdp.config.table import Table, loss, whole
from trafficdp.privacy.loss import PureDP


class StreamSettings(Table):
    """How a stream is published. Times in minutes of stream time.

    ``epsilon`` None: that of [privacy]. ``records_per_vehicle``: how many records every vehicle is sure to
    have taken over the whole period. ``records_per_step``: the most of one vehicle that count in one step; 0:
    all.
    """

    epsilon: Annotated[PureDP | None, loss("2")] = None
    publish_every: Annotated[int, whole(1, 10_080)]
    lateness: Annotated[int, whole(0, 10_080)] = 5
    records_per_vehicle: Annotated[int, whole(1, 10**9)]
    records_per_step: Annotated[int, whole(0, 10**9)] = 0
