"""Kinds of time slot, in the city's time zone."""

from __future__ import annotations

from enum import StrEnum


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
