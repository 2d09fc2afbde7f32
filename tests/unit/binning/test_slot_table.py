"""The table of a period's slots equals ``slots_of``, around every change of clocks."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from trafficdp.binning.places import SlotTable, slots_of
from trafficdp.model import Period, SlotKind

ZONES = {
    "America/Chicago": (date(2026, 3, 6), date(2026, 3, 10)),
    "Europe/Berlin": (date(2026, 10, 23), date(2026, 10, 27)),
    "Africa/Casablanca": (date(2026, 2, 12), date(2026, 3, 25)),
    "Australia/Lord_Howe": (date(2026, 4, 3), date(2026, 4, 7)),
    # an offset of 18:28 minutes, so that no hour begins with a quarter
    "Africa/Nairobi": (date(1927, 6, 28), date(1927, 7, 3)),
}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("kind", SlotKind)
def test_table_equals_slots_of_at_every_tenth_second_and_at_both_ends(zone, kind):
    period = Period(*ZONES[zone], zone)
    start, end = (second * 1_000_000 for second in period.utc_seconds)
    table = SlotTable.of(period, kind)
    times = np.append(np.arange(start, end, 9_999_999), [start, end - 1])
    np.testing.assert_array_equal(table.slots_of(times), slots_of(times, kind, zone))
    # and on both sides of every change that the table has
    edges = np.concatenate([table.start_us, table.start_us[1:] - 1])
    np.testing.assert_array_equal(table.slots_of(edges), slots_of(edges, kind, zone))
    assert len(table.start_us) <= 26 * ((period.last - period.first).days + 1)
