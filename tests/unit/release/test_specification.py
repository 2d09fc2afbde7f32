"""A specification is frozen text: what is read back is what was written, to the last bit."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.model import (
    ContributionBound,
    Counts,
    DayPart,
    Grid,
    MapRequest,
    Period,
    SlotKind,
    SpeedUnit,
    Statistic,
    StudyArea,
    from_json,
)
from trafficdp.privacy.disclosure import Disclosure
from trafficdp.release.specification import Specification

GRID = Grid(
    resolution=7,
    slot_kind=SlotKind.DAY_PART,
    area=StudyArea(shapely.box(72.7, 21.1, 72.95, 21.28)),
    period=Period(date(2026, 3, 3), date(2026, 3, 5), "Asia/Kolkata"),
    day_parts=(DayPart("night", 20, 8), DayPart("day", 8, 20)),
)
DISCLOSURE = from_json(
    Disclosure, json.loads((Path(__file__).parents[1] / "disclosure.json").read_text(encoding="utf-8"))
)
BOUND = ContributionBound(Fraction(65), Fraction(1, 100), SpeedUnit.KILOMETRES_PER_HOUR)
REQUEST = MapRequest(BOUND, 5, 0.1 + 0.2, SpeedUnit.MILES_PER_HOUR)
BOTH = (Statistic.MEAN, Statistic.VARIANCE)
SCALES = st.floats(min_value=0.0, max_value=1e300, allow_nan=False, allow_infinity=False)


def specification(cell, slot, scale, shift, **changes):
    public = PublicFacts(Counts.for_declared_grid(cell, slot), BOUND)
    scales = {Statistic.MEAN: scale, Statistic.VARIANCE: scale / 3}
    facts = {
        "release_id": "r0007",
        "created_at": datetime(2026, 3, 6, 12, 30, 15, tzinfo=UTC),
        "grid": GRID,
        "request": REQUEST,
        "ingest_id": 3,
        "data_version": "ab" * 32,
        "cell": cell,
        "slot": slot,
        "calibrated": CalibratedLaplace(public, BOTH, scales, shift).to_facts(),
        "disclosure": DISCLOSURE,
    }
    return Specification(**{**facts, **changes})


@pytest.mark.slow
@given(
    data=st.integers(0, 30).flatmap(
        lambda bins: st.tuples(
            arrays(np.uint64, bins, elements=st.integers(0, 2**64 - 1)),
            arrays(np.int64, bins, elements=st.integers(-(2**63), 2**63 - 1)),
            arrays(np.float64, bins, elements=SCALES),
            arrays(np.int64, bins, elements=st.integers(1, 2**63 - 1)),
        )
    )
)
def test_writing_and_reading_keeps_every_bit(data):
    before = specification(*data)
    after = Specification.from_json(before.to_json())
    for name in ("cell", "slot"):
        ours, theirs = getattr(before, name), getattr(after, name)
        assert (ours.dtype, ours.tobytes()) == (theirs.dtype, theirs.tobytes())
    counts = Counts.for_declared_grid(before.cell, before.slot)
    ours, theirs = (
        calibrated_from_facts(each.calibrated, each.public_facts(counts)) for each in (before, after)
    )
    assert theirs.statistics == BOTH
    assert (theirs.public.counts, theirs.public.bound) == (counts, BOUND)
    assert theirs.shift.tobytes() == ours.shift.tobytes() == data[3].tobytes()
    for statistic, scale in ours.scale.items():
        assert theirs.scale[statistic].tobytes() == scale.tobytes()
    assert theirs.scale[Statistic.MEAN].tobytes() == data[2].tobytes()
    for name in (
        "release_id",
        "created_at",
        "request",
        "ingest_id",
        "data_version",
        "disclosure",
    ):
        assert getattr(after, name) == getattr(before, name), name
    assert after.grid.key == before.grid.key
    assert after.to_json() == before.to_json()


def test_the_text_is_canonical_ascii():
    text = specification(
        *(np.zeros(0, dtype=kind) for kind in (np.uint64, np.int64, np.float64, np.int64))
    ).to_json()
    assert text.isascii()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_noise_that_is_no_number_is_never_frozen(odd):
    one = np.ones(1, dtype=np.int64)
    with pytest.raises(ValueError, match="JSON"):
        specification(one.astype(np.uint64), one, np.array([odd]), one).to_json()


def test_bins_get_numbers_where_enough_vehicles_were_and_the_grid_may_say_so(counts_of):
    counts = counts_of([[1, 1, 0], [1, 1, 1], [1, 0, 0], [0, 1, 1]])
    one = np.ones(1, dtype=np.int64)
    grid = SimpleNamespace(may_publish=lambda cell, slot: np.array([True, False, True, True]))
    whole = specification(one.astype(np.uint64), one, np.array([2.5]), one)
    frozen = replace(whole, grid=grid, request=replace(REQUEST, min_vehicles=2))
    assert frozen.bins_kept(counts).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    "changes",
    [
        {"bound": replace(BOUND, upper=Fraction(66))},
        {"min_vehicles": 4},
        {"interval_level": 0.9},
        {"display_unit": SpeedUnit.KILOMETRES_PER_HOUR},
        {"publish_counts": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_question_is_another_with_another_request(changes):
    one = np.ones(1, dtype=np.int64)
    frozen = specification(one.astype(np.uint64), one, np.array([2.5]), one)

    def asked(request):
        return replace(frozen, request=request).numbers_sha256

    assert asked(REQUEST) == frozen.numbers_sha256
    assert asked(replace(REQUEST, **changes)) != frozen.numbers_sha256


def test_an_order_of_an_unknown_kind_is_refused():
    one = np.ones(1, dtype=np.int64)
    cell = one.astype(np.uint64)
    text = specification(cell, one, np.array([2.5]), one).to_json()
    wishes = Specification.from_json(text.replace('"kind":"laplace"', '"kind":"wishes"'))
    with pytest.raises(UsageError, match="unknown kind of calibrated mechanism"):
        calibrated_from_facts(wishes.calibrated, wishes.public_facts(Counts.for_declared_grid(cell, one)))
