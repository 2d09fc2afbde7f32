"""What open-data portals read: a Data Package by its published schema, a DCAT-AP dataset by its properties.

``data/data-package.json`` is the profile of Data Package 1.0 that its authors publish
(https://specs.frictionlessdata.io/schemas/data-package.json), as it is in frictionlessdata/datapackage-py at
fd3a9af665cc0e5052437904258b063fb565c6e2, datapackage/profiles (MIT). ``data/dcat-ap-*.ttl`` are the shapes of
DCAT-AP 3.0.1, of properties and of classes, that its authors publish
(https://semiceu.github.io/DCAT-AP/releases/3.0.1/), as they are in SEMICeu/DCAT-AP at
7c531da7f154794da620fd0e57a3e8afe0286c0f, releases/3.0.1/html/shacl (CC BY 4.0, European Union).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from trafficdp.export.files.catalogue import data_package, dataset, stated_files
from trafficdp.export.write import write_release
from trafficdp.model import CatalogueEntry

PROFILE = json.loads((Path(__file__).parent / "data" / "data-package.json").read_text("utf-8"))
ENTRY = CatalogueEntry(
    licence="CC-BY-4.0",
    contact="opendata@example.org",
    landing_page="https://data.example.org/speeds",
    keywords=("Busse", "traffic"),
    language="de-AT",
    previous="r0001",
)


def told(release, entry=ENTRY):
    return replace(release, disclosure=replace(release.disclosure, catalogue=entry))


def written(release, folder):
    write_release(release, folder)
    return [json.loads((folder / name).read_text("utf-8")) for name in ("datapackage.json", "dataset.jsonld")]


@pytest.fixture(scope="module")
def both_written(any_release, tmp_path_factory):
    """Folder and documents of a release without a catalogue entry, and of one with it."""
    folders = [tmp_path_factory.mktemp(name) for name in ("without", "told")]
    return [
        (folder, written(release, folder))
        for folder, release in zip(folders, (any_release, told(any_release)), strict=True)
    ]


@pytest.mark.slow
def test_a_package_meets_the_published_schema(both_written):
    validator = jsonschema.Draft4Validator(PROFILE)
    for _, (package, _) in both_written:
        assert [error.message for error in validator.iter_errors(package)] == []


@pytest.mark.filterwarnings("ignore")  # of the packages that frictionless is made of
def unmet(document):
    """What the published shapes of DCAT-AP say against a dataset, in words; nothing where it meets them."""
    pyshacl = pytest.importorskip("pyshacl")
    import rdflib

    shapes = rdflib.Graph()
    for name in ("shapes", "range"):
        shapes.parse(Path(__file__).parent / "data" / f"dcat-ap-{name}.ttl", format="turtle")
    stated = rdflib.Graph().parse(data=json.dumps(document), format="json-ld")
    meets, _, words = pyshacl.validate(stated, shacl_graph=shapes)
    return "" if meets else words


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph")
def test_a_dataset_meets_the_published_shapes(both_written):
    for _, (_, document) in both_written:
        assert unmet(document) == ""


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph")
def test_the_shapes_refuse_what_is_not_there_or_of_another_kind(city, tmp_path):
    _, document = written(told(city), tmp_path)
    for key, wrong in (
        ("dct:title", None),
        ("dct:description", None),
        ("dcat:contactPoint", {"@type": "foaf:Document"}),
        ("dct:publisher", {"@type": "dcat:Catalog"}),
    ):
        changed = {name: value for name, value in document.items() if name != key}
        assert unmet(changed | ({} if wrong is None else {key: wrong})), key


def test_files_and_table_are_what_the_package_says(any_release, both_written, tmp_path):
    frictionless = pytest.importorskip("frictionless")
    _, (folder, _) = both_written
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    package = frictionless.Package(str(tmp_path / "datapackage.json"))
    report = package.validate()
    assert report.valid, report.flatten(["title", "message"])[:5]
    # it looked at every row, and would have seen a number that is none
    rows = {task.name: task.stats.get("rows") for task in report.tasks}
    assert rows["cells.csv"] == any_release.bins
    assert len(rows) == 5
    wrong = (tmp_path / "cells.csv").read_text("utf-8").replace(",released,", ",free,")
    (tmp_path / "cells.csv").write_text(wrong, "utf-8")
    assert not package.validate().valid


def test_both_state_the_files_that_were_written(city, tmp_path):
    package, portal = written(city, tmp_path)
    files = {
        name: (len(content), hashlib.sha256(content).hexdigest())
        for name in ("map.geojson", "cells.csv", "cells.parquet", "map.html", "mechanism.parquet")
        for content in [(tmp_path / name).read_bytes()]
    }
    assert stated_files(package) == stated_files(portal) == files
    listed = {each["name"] for each in json.loads((tmp_path / "manifest.json").read_text("utf-8"))["files"]}
    assert listed == {*files, "datapackage.json", "dataset.jsonld"}


def test_a_column_without_a_value_has_a_type(city, tmp_path):
    package, _ = written(city, tmp_path)
    schema = next(each for each in package["resources"] if each["path"] == "cells.csv")["schema"]
    types = {each["name"]: each["type"] for each in schema["fields"]}
    assert (types["vehicles"], types["slot_start"], types["place"]) == ("integer", "datetime", "string")
    assert {types[f"speed_mean_kmh{end}"] for end in ("", "_low", "_high")} == {"number"}
    assert schema["primaryKey"] == [schema["fields"][0]["name"], "slot"]
    assert schema["missingValues"] == [""]


def test_what_is_configured_is_told(city):
    facts = told(city).disclosure
    package, portal = data_package(facts, ()), dataset(facts, ())
    assert package["licenses"] == [{"name": "CC-BY-4.0", "path": "https://spdx.org/licenses/CC-BY-4.0"}]
    assert package["homepage"] == "https://data.example.org/speeds"
    assert package["contributors"][0]["email"] == "opendata@example.org"
    assert package["keywords"] == ["Busse", "traffic", "speed", "differential privacy"]
    assert portal["@id"] == "https://data.example.org/speeds/R0001/"
    assert portal["dcat:previousVersion"]["@id"] == "https://data.example.org/speeds/r0001/"
    assert portal["dcat:contactPoint"]["vcard:hasEmail"] == {"@id": "mailto:opendata@example.org"}
    assert portal["dct:language"]["@id"] == "http://id.loc.gov/vocabulary/iso639-1/de"
    assert {"@value": "Busse", "@language": "de-AT"} in portal["dcat:keyword"]


def test_addresses_are_told_as_they_are(city):
    entry = CatalogueEntry(
        licence="https://example.org/licence", contact="https://example.org/ask", language="fil"
    )
    facts = told(city, entry).disclosure
    assert data_package(facts, ())["licenses"] == [{"path": "https://example.org/licence"}]
    assert data_package(facts, ())["contributors"][0]["path"] == "https://example.org/ask"
    portal = dataset(facts, ())
    assert portal["dcat:contactPoint"]["vcard:hasURL"] == {"@id": "https://example.org/ask"}
    assert portal["dct:language"]["@id"] == "http://id.loc.gov/vocabulary/iso639-2/fil"


def test_what_is_not_configured_is_not_there(city):
    package, portal = data_package(city.disclosure, ()), dataset(city.disclosure, ())
    assert not {"licenses", "homepage"} & package.keys()
    assert not {"dcat:landingPage", "dcat:contactPoint", "dcat:previousVersion"} & portal.keys()
    assert portal["@id"] == "./"


def test_place_and_time_are_those_of_the_manifest(city):
    portal = dataset(city.disclosure, ())
    assert portal["dct:temporal"]["dcat:startDate"]["@value"] == "2016-11-24"
    box = portal["dct:spatial"]["dcat:bbox"]["@value"]
    assert box.startswith("POLYGON ((")
    assert all(corner in box for corner in ("-98.1 30", "-97.4 30.6"))


def test_an_area_across_the_antimeridian_has_a_box_of_two_parts(fiji):
    box = dataset(fiji.disclosure, ())["dct:spatial"]["dcat:bbox"]["@value"]
    assert box.startswith("MULTIPOLYGON (")
    assert all(corner in box for corner in ("180 20", "-180 -30"))
