"""Numbers of longer slots, for maps that fall back on them: negative, so that no other slot has them.

====================  =================================================================================
WHOLE_PERIOD          -1
DAY_PART              -100 + index into the declared day parts
DAY                   -10^12 + UTC epoch second at which the local day starts
====================  =================================================================================
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.model.slot import SlotKind

IntArray = npt.NDArray[np.int64]
OFFSET = {SlotKind.DAY: -(10**12), SlotKind.DAY_PART: -100, SlotKind.WHOLE_PERIOD: -1}
"""What is added to a slot's own number."""
LONGER = {
    SlotKind.WHOLE_PERIOD: (),
    SlotKind.HOUR_OF_DAY: (SlotKind.DAY_PART, SlotKind.WHOLE_PERIOD),
    SlotKind.WEEKDAY_WEEKEND_HOUR: (SlotKind.DAY_PART, SlotKind.WHOLE_PERIOD),
    SlotKind.DAY_PART: (SlotKind.WHOLE_PERIOD,),
    SlotKind.WEEKDAY: (SlotKind.WHOLE_PERIOD,),
    SlotKind.DAY: (SlotKind.WHOLE_PERIOD,),
    SlotKind.CALENDAR_HOUR: (SlotKind.DAY, SlotKind.WHOLE_PERIOD),
}
"""The kinds that a kind of slot can fall back on, from short to long: unions of its slots."""


def kinds_of(slot: IntArray, kind: SlotKind) -> npt.NDArray[np.object_]:
    """Return the kind of every slot, shape (n,), on a map whose own slots are of ``kind``."""
    # members by their place, because NumPy would turn a single one into plain text
    members = np.empty(4, dtype=object)
    members[:] = [kind, SlotKind.WHOLE_PERIOD, SlotKind.DAY_PART, SlotKind.DAY]
    place = np.where(slot < OFFSET[SlotKind.DAY_PART], 3, 2)
    place[slot == OFFSET[SlotKind.WHOLE_PERIOD]] = 1
    place[slot >= 0] = 0
    result: npt.NDArray[np.object_] = members[place]
    return result
