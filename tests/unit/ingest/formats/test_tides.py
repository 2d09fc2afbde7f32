from __future__ import annotations

import json
import shutil

import pytest

from trafficdp.errors import DataError
from trafficdp.model import SourceDeclaration, SpeedUnit, UnitPeriod


@pytest.fixture
def source():
    return SourceDeclaration("tides", "tides", ("*",), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),))


@pytest.fixture
def package(data, tmp_path):
    folder = tmp_path / "package"
    shutil.copytree(data / "tides", folder)
    return folder / "datapackage.json"


def test_na_nan_and_empty_are_missing_values(reader, data):
    result = reader.file(data / "tides/TIDES/vehicle_locations.csv")
    assert result.report.rejected == {"missing_speed": 3, "missing_vehicle": 1}
    assert result.fixes.table.column("speed_centi").to_pylist() == [325]


def test_missing_speeds_can_be_derived(reader, data):
    result = reader.file(data / "tides/TIDES/vehicle_locations.csv", missing_speed="derive")
    assert result.report.derived == 3
    assert result.fixes.table.column("speed_centi").to_pylist() == [325, 37, 37, 37]


def test_a_data_package_leads_to_the_same_fixes(reader, data, package):
    direct = reader.file(data / "tides/TIDES/vehicle_locations.csv")
    assert reader.file(package).fixes.table.equals(direct.fixes.table)


def test_the_hash_of_a_package_changes_with_its_table(reader, package):
    before = reader.file(package).digest
    table = package.parent / "TIDES/vehicle_locations.csv"
    table.write_text(table.read_text() + "6,x,2020-11-28T14:50:00+05:30,1,0042,,21.2,72.8,0,1,x\n")
    assert reader.file(package).digest != before


@pytest.mark.parametrize(
    "path", ["../outside.csv", "/etc/hostname", "https://example.org/a.csv", None, 5, "a\x00b"]
)
def test_a_package_may_not_name_files_outside_its_folder(reader, package, path):
    (package.parent.parent / "outside.csv").write_text("secret")
    package.write_text(json.dumps({"resources": [{"name": "vehicle_locations", "path": path}]}))
    with pytest.raises(DataError, match="outside its own folder"):
        reader.file(package)


def test_a_link_out_of_the_folder_is_refused(reader, package):
    outside = package.parent.parent / "outside.csv"
    outside.write_text("secret")
    (package.parent / "link.csv").symlink_to(outside)
    package.write_text(json.dumps({"resources": [{"name": "vehicle_locations", "path": "link.csv"}]}))
    with pytest.raises(DataError, match="outside its own folder"):
        reader.file(package)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not a data package"),
        ("{}", "not a data package"),
        ('{"resources": []}', "names no vehicle_locations"),
        ('{"resources": [3, {"path": "trips.csv"}]}', "names no vehicle_locations"),
        ('{"resources": [{"path": "vehicle_locations.csv"}]}', "there is no file"),
    ],
)
def test_a_package_that_is_none_is_refused(reader, package, content, message):
    package.write_text(content)
    with pytest.raises(DataError, match=message):
        reader.file(package)
