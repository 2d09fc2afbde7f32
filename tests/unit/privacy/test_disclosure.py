import pytest

from trafficdp.errors import UsageError
from trafficdp.model import as_json
from trafficdp.privacy.disclosure import DeclaredUnit, RecordSource, Software

UNITS = (DeclaredUnit(unit="m/s", first=None, last=None),)


def test_a_commit_that_is_not_known_is_left_out():
    assert as_json(Software(name="trafficdp", version="1")) == {"name": "trafficdp", "version": "1"}


def test_where_speeds_come_from_is_never_left_open():
    facts = {"name": "buses", "format": "csv", "units": UNITS, "cleaning": ("rule",)}
    RecordSource(**facts, speed="reported")
    with pytest.raises(UsageError, match="speed"):
        RecordSource(**facts, speed="unclear")
