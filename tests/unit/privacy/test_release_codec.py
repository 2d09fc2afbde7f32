import json
from dataclasses import fields, replace
from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import shapely

from trafficdp.model import (
    OF_MAPS,
    ContributionBound,
    Grid,
    Period,
    SlotKind,
    SpeedUnit,
    Statistic,
    StudyArea,
    as_json,
    from_json,
)
from trafficdp.privacy.release import (
    decode,
    encode,
    same_arrays,
)


def through_json(facts):
    return json.loads(json.dumps(facts, allow_nan=False))


def round_trip(release):
    facts, arrays = encode(release)
    return decode(through_json(facts), arrays)


def assert_same(left, right):
    for field in fields(left):
        before, after = getattr(left, field.name), getattr(right, field.name)
        if isinstance(before, np.ndarray):
            assert before.dtype == after.dtype, field.name
            same = before.tolist() if before.dtype == object else before.tobytes()
            assert same == (after.tolist() if before.dtype == object else after.tobytes()), field.name
        elif field.name == "estimates":
            assert list(before) == list(after)
            for statistic, estimate in before.items():
                assert_same(estimate, after[statistic])
        elif field.name == "noise":
            assert list(before) == list(after)
            for name, values in before.items():
                assert values.dtype == after[name].dtype, name
                assert values.tobytes() == after[name].tobytes(), name
        elif field.name != "grid":
            assert before == after, field.name
            assert type(before) is type(after)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize(
    "statistics",
    [OF_MAPS, (Statistic.VARIANCE,), (Statistic.VEHICLE_MEAN, Statistic.MEAN), ()],
)
def test_a_release_comes_back_without_losing_a_bit(release_with, statistics, counts):
    release = release_with(statistics, counts=counts)
    again = round_trip(release)
    assert_same(release, again)
    assert again.grid.key == release.grid.key
    assert again.grid.day_parts == release.grid.day_parts
    assert (again.vehicles is None) is not counts


def test_missing_numbers_stay_missing_and_not_none(release_with):
    value = round_trip(release_with()).estimates[Statistic.MEAN].value
    assert value.dtype == np.float64
    assert np.isnan(value[2])


def test_encoding_twice_gives_the_same_bytes(release_with):
    facts, arrays = encode(release_with())
    again_facts, again = encode(decode(through_json(facts), arrays))
    assert arrays == again
    assert json.dumps(facts) == json.dumps(again_facts)


def test_arrays_are_compared_to_the_bit_however_they_are_packed(release_with):
    release = release_with()
    arrays = encode(release)[1]
    table = pa.ipc.open_stream(arrays).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    plain = sink.getvalue().to_pybytes()
    assert plain != arrays
    assert same_arrays(arrays, plain)
    value = release.estimates[Statistic.MEAN].value.copy()
    value[0] = np.nextafter(value[0], np.inf)
    other = replace(release.estimates[Statistic.MEAN], value=value)
    changed = replace(release, estimates={**release.estimates, Statistic.MEAN: other})
    assert not same_arrays(arrays, encode(changed)[1])


@pytest.mark.parametrize("kind", list(SlotKind))
@pytest.mark.parametrize(
    "area",
    [
        StudyArea.from_bbox(170.0, -20.5, -170.0, 0.1),
        StudyArea(shapely.Polygon([(0.1, 0.2), (1 / 3, 0.2), (0.3, 0.7)])),
    ],
)
def test_a_grid_comes_back_with_the_same_key(kind, area):
    grid = Grid(15, kind, area, Period(date(2024, 2, 29), date(2024, 3, 31), "Europe/London"))
    again = from_json(Grid, through_json(as_json(grid)))
    assert again.key == grid.key
    assert again.area.geometry.equals_exact(grid.area.geometry, 0)
    assert again.period == grid.period


@pytest.mark.parametrize("unit", list(SpeedUnit))
@pytest.mark.parametrize(("upper", "step"), [("30", "1/10"), ("65", "1"), ("1", "1/3"), ("0.7", "0.0001")])
def test_a_bound_comes_back_exactly(upper, step, unit):
    bound = ContributionBound(Fraction(upper), Fraction(step), unit)
    assert from_json(ContributionBound, through_json(as_json(bound))) == bound
