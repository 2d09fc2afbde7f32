"""A small release with every kind of status, statistic and missing fact."""

import json
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from trafficdp.model import (
    OF_MAPS,
    ContributionBound,
    DayPart,
    Grid,
    MapRequest,
    Period,
    SlotKind,
    SpeedUnit,
    StudyArea,
    from_json,
)
from trafficdp.privacy.disclosure import Disclosure
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.release import LedgerReference, Release, SlotFacts

NAN = np.nan
DISCLOSURE = from_json(
    Disclosure, json.loads((Path(__file__).parents[1] / "disclosure.json").read_text(encoding="utf-8"))
)


def _estimate(statistic, **changes):
    arrays = {
        "value": [10.1234567, 1 / 3, NAN],
        "low": [9.00049, 0.0, NAN],
        "high": [11.00051, 5e-324, NAN],
        "noise_scale": [0.1, 0.0, NAN],
        "lattice_scale": [1.0000000000000002, 0.0, NAN],
        "expected_error": [0.0990001, 0.0, NAN],
    }
    arrays = {name: np.array(changes.get(name, values)) for name, values in arrays.items()}
    return Estimate(
        statistic=statistic,
        status=np.array(["released", "constant", "withheld"], dtype=object),
        noise={"lattice_scale": arrays.pop("lattice_scale"), "shift": np.array([1, 2**62, 0])},
        **arrays,
    )


def _release(statistics=OF_MAPS, display=SpeedUnit.KILOMETRES_PER_HOUR, counts=True, **changes):
    unit = changes.pop("unit", SpeedUnit.METRES_PER_SECOND)
    return Release(
        id="r0001",
        created_at=datetime(2016, 11, 28, 1, 2, 3, 456789, tzinfo=UTC),
        grid=Grid(
            resolution=7,
            slot_kind=SlotKind.DAY,
            area=StudyArea.from_bbox(-98.1, 30.0, -97.3, 30.7),
            period=Period(date(2016, 11, 24), date(2016, 11, 27), "America/Chicago"),
            day_parts=(DayPart("day", 6, 20), DayPart("night", 20, 6)),
        ),
        request=MapRequest(
            ContributionBound(Fraction(30), Fraction(1, 10), unit), 5, 0.95, display, publish_counts=counts
        ),
        cell=np.array([0x872830828FFFFFF, 0x872830829FFFFFF, 2**64 - 1], dtype=np.uint64),
        slot=np.array([1479967200, 1479967200, -7]),
        status=np.array(["released", "released", "withheld"], dtype=object),
        place=np.array(["Ring Road", "Ring Road (2)", "in the middle"], dtype=object),
        vehicles=np.array([9, 7, 2]) if counts else None,
        records=np.array([100, 7, 2**40]) if counts else None,
        estimates={s: _estimate(s, **changes) for s in statistics},
        slots={
            1479967200: SlotFacts("24 November", "2016-11-24T00:00:00-06:00", "2016-11-25T00:00:00-06:00"),
            -7: SlotFacts("recurring, named with ü", None, None),
        },
        ledger=LedgerReference(3, "ab" * 32),
        disclosure=DISCLOSURE,
    )


@pytest.fixture(scope="session")
def release_with():
    """``release_with(statistics, display, counts, unit=..., value=..., low=..., high=...)``."""
    return _release
