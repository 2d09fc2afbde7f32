"""Kinds of time slot, in the city's time zone, and the longer ones that a map falls back on.

Numbers of longer slots are negative, so that no other slot has them:

====================  =================================================================================
WHOLE_PERIOD          -1
DAY_PART              -100 + index into the declared day parts
DAY                   -10^12 + UTC epoch second at which the local day starts
====================  =================================================================================
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


class SlotKind(StrEnum):
    """How time is cut. The number of a slot means:

    ===================  ==========================================================================
    WHOLE_PERIOD         0
    HOUR_OF_DAY          0..23, the local clock hour
    WEEKDAY_WEEKEND_HOUR 0..23 on Monday to Friday, 24..47 on Saturday and Sunday
    DAY_PART             index into the declared day parts
    WEEKDAY              0 for Monday to 6 for Sunday
    DAY                  UTC epoch second at which the local day starts
    CALENDAR_HOUR        UTC epoch second at which the local clock hour starts (a repeated hour of a
                         clock change counts as two)
    ===================  ==========================================================================

    The first five recur or span the period; DAY and CALENDAR_HOUR are points on the calendar.
    """

    WHOLE_PERIOD = "whole_period"
    HOUR_OF_DAY = "hour_of_day"
    WEEKDAY_WEEKEND_HOUR = "weekday_weekend_hour"
    DAY_PART = "day_part"
    WEEKDAY = "weekday"
    DAY = "day"
    CALENDAR_HOUR = "calendar_hour"

    @property
    def recurs(self) -> bool:
        """Whether one slot gathers many stretches of time (so that it has no single start)."""
        return self in (
            SlotKind.HOUR_OF_DAY,
            SlotKind.WEEKDAY_WEEKEND_HOUR,
            SlotKind.DAY_PART,
            SlotKind.WEEKDAY,
        )

    @property
    def longer(self) -> tuple[SlotKind, ...]:
        """Longer kinds to try instead, from many slots to few."""
        return () if self is SlotKind.WHOLE_PERIOD else (*_LONGER[self], SlotKind.WHOLE_PERIOD)


_LONGER = {
    SlotKind.CALENDAR_HOUR: (SlotKind.DAY, SlotKind.WEEKDAY_WEEKEND_HOUR, SlotKind.HOUR_OF_DAY),
    SlotKind.DAY: (),
    SlotKind.WEEKDAY_WEEKEND_HOUR: (SlotKind.HOUR_OF_DAY, SlotKind.DAY_PART),
    SlotKind.HOUR_OF_DAY: (SlotKind.DAY_PART,),
    SlotKind.DAY_PART: (),
    SlotKind.WEEKDAY: (),
    SlotKind.WHOLE_PERIOD: (),
}

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
