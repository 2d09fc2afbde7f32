from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.ingest.times import Timeline, derived_speed_ms

fixes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-300, 300).map(lambda half_seconds: half_seconds * 500_000)),
    max_size=60,
)


def timeline(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return Timeline.of(columns[:, 0], columns[:, 1])


@given(fixes)
def test_fixes_are_in_order_of_vehicle_then_time_then_place_in_the_file(rows):
    expected = sorted(range(len(rows)), key=lambda place: (*rows[place], place))
    assert timeline(rows).order.tolist() == expected


@given(fixes)
def test_fixes_of_one_vehicle_and_instant_are_at_one_place_along_the_line(rows):
    found = timeline(rows)
    repeated = dict(zip(found.order[1:].tolist(), (np.diff(found.along) == 0).tolist(), strict=True))
    expected = [row in rows[:i] for i, row in enumerate(rows)]
    assert [repeated.get(i, False) for i in range(len(rows))] == expected


@given(fixes)
def test_the_preceding_fix_is_the_latest_of_the_same_vehicle_2_to_120_seconds_before(rows):
    nowhere = np.zeros(len(rows))
    _, preceding = derived_speed_ms(timeline(rows), nowhere, nowhere)
    for (vehicle, time), found in zip(rows, preceding, strict=True):
        before = [t for v, t in rows if v == vehicle and 2_000_000 <= time - t <= 120_000_000]
        if before:
            assert rows[found] == (vehicle, max(before))
        else:
            assert found == -1
