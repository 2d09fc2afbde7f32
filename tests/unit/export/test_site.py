"""Every link of a site leads somewhere, nothing is in it that was not released, it is brought up in place.

``files/data/dcat-us`` are the definitions of DCAT-US 3.0 as its authors publish them
(https://github.com/GSA/dcat-us, jsonschema), as they are in GSA/datagov-harvester at
e04f7de82a54817f18d1a03d66b983c858318ca8, schemas/dcatus3.0/definitions (CC0).
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import shutil
import threading
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree

import jsonschema
import pytest
from languages import ENGLISH_WORDS, Texts
from referencing import Registry, Resource

from trafficdp.errors import StoreDamagedError, UsageError
from trafficdp.export import write
from trafficdp.export.files.catalogue import registry_record
from trafficdp.export.files.language import Language
from trafficdp.export.files.manifest import validate_manifest
from trafficdp.export.report.change_files import ChangeTable
from trafficdp.export.report.report import report_html
from trafficdp.export.site import CHANGES, INDEX, MAP, REPORT, PublishedRelease, SiteCity, write_site
from trafficdp.export.write import write_release
from trafficdp.model import CatalogueEntry

DCAT_US = Path(__file__).parent / "files/data/dcat-us"
ADDRESS = "https://data.example.org/speeds"
ENTRY = CatalogueEntry(licence="CC-BY-4.0", contact="opendata@example.org")
CITY = SiteCity("Austin", "City of Austin", ENTRY)


@pytest.fixture(scope="module")
def _written():
    """The releases that tests of this file asked for: manifest, folder and report of each."""
    return {}


@pytest.fixture
def publish(tmp_path, tmp_path_factory, _written):
    """``publish(release, name)``: the release in a folder of a store, under that name.

    It is written once for all tests that ask for the same; each gets a copy.
    """

    def published(release, name, *, question=None, entry=ENTRY, report=True, against=None):
        asked = id(release), name, question, entry, write.MOST_BINS_OF_TEXT
        if asked not in _written:
            identity = replace(release.disclosure.identity, release=name, question=question)
            told = replace(release.disclosure, identity=identity, catalogue=entry)
            told = replace(told, registry=registry_record(told))
            release = replace(release, id=name, disclosure=told)
            folder = tmp_path_factory.mktemp(name)
            write_release(release, folder)
            manifest = validate_manifest(json.loads((folder / "manifest.json").read_text("utf-8")))
            _written[asked] = manifest, folder, functools.cache(functools.partial(report_html, release))
        manifest, kept, made = _written[asked]
        folder = shutil.copytree(kept, tmp_path / "releases" / name)
        return PublishedRelease(manifest, folder, made if report else (lambda: None), against)

    return published


@pytest.fixture
def two(publish, city, rush_hours):
    return [publish(rush_hours, "r0002"), publish(city, "r0001")]


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


class Links(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.found += [given[name] for name in ("href", "src") if name in given]


def test_every_link_leads_to_a_file_without_a_server(two, tmp_path):
    write_site(tmp_path / "site", CITY, two, ["r0000"])
    files = files_of(tmp_path / "site")
    followed = {"index.html"}
    for name, path in files.items():
        if path.name in ("index.html", "report.html"):
            for link in Links(path.read_text("utf-8")).found:
                if not urlsplit(link).scheme and not link.startswith("#"):
                    target = urljoin(f"https://site/{name}", link).removeprefix("https://site/")
                    assert target in files, (name, link)
                    followed.add(target)
    # the newest is also at its own address, to which nothing but the list of releases leads
    assert {*files} - followed == {"site.json"}


def test_what_is_in_it_was_released_or_follows_from_it(two, tmp_path):
    write_site(tmp_path / "site", CITY, two, [])
    files = files_of(tmp_path / "site")
    for each in two:
        for path in each.folder.iterdir():
            assert files.pop(f"{each.id}/{path.name}").read_bytes() == path.read_bytes()
    for name in [name for name in files if name.startswith("latest/")]:
        twin = tmp_path / "site" / "r0002" / name.removeprefix("latest/")
        assert files.pop(name).read_bytes() == twin.read_bytes()
    pages = {f"{name}/{page}.html" for name in ("r0001", "r0002") for page in ("index", "report")}
    assert {*files} == {"index.html", "catalog.jsonld", "site.json", *pages}


@pytest.mark.parametrize("tag", ["de", "es", "fr"])
def test_pages_are_in_the_language_of_the_city(tag, publish, city, rush_hours, tmp_path):
    entry = replace(ENTRY, language=tag, landing_page=ADDRESS)
    there = [publish(rush_hours, "r0002", entry=entry, report=False), publish(city, "r0001", entry=entry)]
    write_site(tmp_path / "site", replace(CITY, entry=entry), there, ["r0000"])
    for name in ("index.html", "r0001/index.html", "r0002/index.html", "r0000/index.html"):
        page = (tmp_path / "site" / name).read_text("utf-8")
        assert f'<html lang="{tag}">' in page
        for _, text in Texts(page).found:
            assert not ENGLISH_WORDS.search(text.replace("City of Austin", "")), text
    feed = (tmp_path / "site/feed.atom").read_text("utf-8")
    assert f'xml:lang="{tag}"' in feed
    titles = Language.of(tag).gettext("Traffic speeds of {place}", place="Austin")
    assert f"<title>{titles}</title>" in feed


def test_sizes_and_hashes_on_the_page_are_those_of_the_files(two, tmp_path):
    write_site(tmp_path / "site", CITY, two, [])
    page = (tmp_path / "site/r0001/index.html").read_text("utf-8")
    for name in ("cells.csv", "cells.parquet", "map.geojson", "map.html", "mechanism.parquet"):
        content = (tmp_path / "site/r0001" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() in page
        assert f">{len(content) / 1000:.1f} kB<" in page


def test_pages_say_what_is_promised_and_by_whom(two, tmp_path):
    write_site(tmp_path / "site", CITY, two, [])
    for name in ("index.html", "r0001/index.html"):
        page = (tmp_path / "site" / name).read_text("utf-8")
        facts = two[0].manifest if name == "index.html" else two[1].manifest
        assert facts.unit.protected in page
        assert all(each in page for each in facts.unit.not_protected)
    assert 'rel="license" href="https://spdx.org/licenses/CC-BY-4.0"' in page
    assert "mailto:opendata@example.org" in page
    assert "a newer map</a>" in page
    assert "a newer map</a>" not in (tmp_path / "site/r0002/index.html").read_text("utf-8")


def test_the_catalogue_names_every_file_with_its_checksum(two, tmp_path):
    write_site(tmp_path / "site", CITY, two, [])
    document = json.loads((tmp_path / "site/catalog.jsonld").read_text("utf-8"))
    assert document["@type"] == "dcat:Catalog"
    assert [each["dct:identifier"] for each in document["dcat:dataset"]] == ["r0002", "r0001"]
    files = 0
    for dataset in document["dcat:dataset"]:
        for each in dataset["dcat:distribution"]:
            path = tmp_path / "site" / each["dcat:downloadURL"]["@id"]
            stated = each["spdx:checksum"]["spdx:checksumValue"]["@value"]
            assert hashlib.sha256(path.read_bytes()).hexdigest() == stated
            files += 1
    assert files == 10


def test_with_an_address_the_catalogue_is_whole_and_there_is_a_feed(publish, city, tmp_path):
    entry = replace(ENTRY, landing_page=f"{ADDRESS}/", previous="r0001", language="en")
    releases = [publish(city, "r0002", entry=entry)]
    write_site(tmp_path / "site", replace(CITY, entry=entry), releases, ["r0001"])
    document = json.loads((tmp_path / "site/catalog.jsonld").read_text("utf-8"))
    (dataset,) = document["dcat:dataset"]
    assert (document["@id"], dataset["@id"]) == (f"{ADDRESS}/", f"{ADDRESS}/r0002/")
    assert dataset["dcat:previousVersion"] == {"@id": f"{ADDRESS}/r0001/"}
    feed = ElementTree.parse(tmp_path / "site/feed.atom").getroot()
    name = "{http://www.w3.org/2005/Atom}"
    assert feed.find(f"{name}id").text == f"{ADDRESS}/"
    assert [each.find(f"{name}id").text for each in feed.iter(f"{name}entry")] == [f"{ADDRESS}/r0002/"]
    # on a site of this address all of it is there
    for link in feed.iter(f"{name}link"):
        target = link.get("href").removeprefix(f"{ADDRESS}/") or "index.html"
        assert (tmp_path / "site" / target).is_file()


def test_data_json_meets_dcat_us_and_says_what_the_catalogue_does(publish, city, rush_hours, tmp_path):
    entry = replace(ENTRY, landing_page=f"{ADDRESS}/", language="es-US", keywords=("buses",))
    # the first was released before the city had addresses
    releases = [publish(rush_hours, "r0002", entry=entry), publish(city, "r0001", entry=CatalogueEntry())]
    write_site(tmp_path / "site", replace(CITY, entry=entry), releases, [])
    ours, european = (
        json.loads((tmp_path / "site" / name).read_text("utf-8")) for name in ("data.json", "catalog.jsonld")
    )
    assert of_us(ours) == []
    assert ours["conformsTo"]["title"] == "DCAT-US 3.0"
    for dataset, theirs in zip(ours["dataset"], european["dcat:dataset"], strict=True):
        assert dataset["identifier"] == f"{ADDRESS}/{theirs['dct:identifier']}/"
        assert dataset["title"] == theirs["dct:title"]["@value"]
        assert dataset["contactPoint"][0]["hasEmail"] == "mailto:opendata@example.org"
        assert len(dataset["distribution"]) == len(theirs["dcat:distribution"]) == 5
        for each in dataset["distribution"]:
            content = (tmp_path / "site" / each["downloadURL"].removeprefix(f"{ADDRESS}/")).read_bytes()
            assert hashlib.sha256(content).hexdigest() == each["checksum"]["checksumValue"]
            assert str(len(content)) == each["byteSize"]
    assert (ours["dataset"][0]["language"], "language" in ours["dataset"][1]) == ("es", False)
    assert 'href="data.json"' in (tmp_path / "site/index.html").read_text("utf-8")
    for key, wrong in (
        ("title", None),
        ("contactPoint", [{"fn": "A"}]),
        ("issued", 7),
        ("keyword", "a"),
    ):
        assert of_us(ours | {"dataset": [ours["dataset"][0] | {key: wrong}]}) != [], key


@pytest.mark.parametrize(
    "told", [{"contact": None}, {"contact": "https://example.org/ask"}, {"landing_page": None}]
)
def test_without_a_mailbox_or_an_address_there_is_no_data_json(publish, city, tmp_path, told):
    entry = replace(ENTRY, landing_page=ADDRESS)
    write_site(tmp_path / "site", replace(CITY, entry=entry), [publish(city, "r0001")], [])
    assert (tmp_path / "site/data.json").exists()
    entry = replace(entry, **told)
    write_site(tmp_path / "site", replace(CITY, entry=entry), [], [])
    assert not (tmp_path / "site/data.json").exists()
    assert "data.json" not in (tmp_path / "site/index.html").read_text("utf-8")


def of_us(document):
    """What the published schema of DCAT-US 3 says against a catalogue, in words."""
    definitions = [json.loads(path.read_text("utf-8")) for path in DCAT_US.glob("*.json")]
    known = Registry().with_resources((each["$id"], Resource.from_contents(each)) for each in definitions)
    (schema,) = (each for each in definitions if each["$id"].endswith("/catalog"))
    checks = jsonschema.Draft202012Validator(
        schema, registry=known, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    return [error.message for error in checks.iter_errors(document)]


def test_without_an_address_the_version_before_is_beside_it(publish, city, tmp_path):
    releases = [publish(city, "r0002", entry=replace(ENTRY, previous="r0001")), publish(city, "r0001")]
    write_site(tmp_path / "site", CITY, releases, [])
    document = json.loads((tmp_path / "site/catalog.jsonld").read_text("utf-8"))
    assert document["dcat:dataset"][0]["dcat:previousVersion"] == {"@id": "./r0001/"}
    assert not (tmp_path / "site/feed.atom").exists()


def test_built_again_nothing_changes_and_no_report_is_made(two, tmp_path):
    assert len(write_site(tmp_path / "site", CITY, two, [])) > 20
    before = {name: path.stat().st_mtime_ns for name, path in files_of(tmp_path / "site").items()}
    again = [replace(each, report=lambda: pytest.fail("made again")) for each in two]
    assert write_site(tmp_path / "site", CITY, again, []) == []
    assert {name: path.stat().st_mtime_ns for name, path in files_of(tmp_path / "site").items()} == before


def test_another_comparison_makes_the_report_again(two, tmp_path):
    write_site(tmp_path / "site", CITY, two, [])
    other = replace(two[0], report=lambda: b"<p>other</p>", against="r0001")
    changed = write_site(tmp_path / "site", CITY, [other, two[1]], [])
    assert changed == ["r0002/report.html", "latest/report.html"]


def test_what_was_withdrawn_goes_and_its_address_says_so(two, tmp_path):
    write_site(tmp_path / "site", CITY, two, [])
    (tmp_path / "site/robots.txt").write_text("mine")
    write_site(tmp_path / "site", CITY, two[1:], ["r0002"])
    site = tmp_path / "site"
    assert os.listdir(site / "r0002") == ["index.html"]
    assert "This release was withdrawn" in (site / "r0002/index.html").read_text("utf-8")
    assert (site / "latest/cells.csv").read_bytes() == (site / "r0001/cells.csv").read_bytes()
    assert (site / "robots.txt").read_text() == "mine"
    everything = b"".join(path.read_bytes() for path in files_of(site).values())
    for path in two[0].folder.iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest().encode() not in everything
    write_site(site, CITY, [], ["r0001", "r0002"])
    assert {*files_of(site)} == {
        *("index.html", "catalog.jsonld", "site.json", "robots.txt"),
        *("r0001/index.html", "r0002/index.html"),
    }


def test_a_site_that_was_interrupted_is_taken_up(two, tmp_path, monkeypatch):
    def dies():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_site(tmp_path / "site", CITY, [two[0], replace(two[1], report=dies)], [])
    write_site(tmp_path / "site", CITY, two[1:], [])
    assert not (tmp_path / "site/r0002").exists()
    assert (tmp_path / "site/r0001/index.html").is_file()


def test_the_newest_map_is_shown_and_not_a_newer_answer(publish, city, rush_hours, tmp_path):
    answer = publish(rush_hours, "r0002", question="SELECT <1>")
    write_site(tmp_path / "site", CITY, [answer, publish(city, "r0001")], [])
    site = tmp_path / "site"
    assert (site / "latest/cells.csv").read_bytes() == (site / "r0001/cells.csv").read_bytes()
    assert "SELECT &lt;1&gt;" in (site / "r0002/index.html").read_text("utf-8")
    assert "Answers to questions" in (site / "index.html").read_text("utf-8")


def test_a_release_without_report_and_page_has_no_links_to_them(publish, city, tmp_path, monkeypatch):
    monkeypatch.setattr("trafficdp.export.write.MOST_BINS_OF_TEXT", 1)
    write_site(tmp_path / "site", CITY, [publish(city, "r0001", report=False)], [])
    for name in ("index.html", "r0001/index.html"):
        page = (tmp_path / "site" / name).read_text("utf-8")
        assert "map.html" not in page
        assert "report.html" not in page
        assert "too large for a page" in page


@pytest.mark.parametrize("content", [None, "[]", '{"files": 3, "reports": {}}'])
def test_a_folder_of_something_else_is_refused_and_left_alone(two, tmp_path, content):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / ("notes.txt" if content is None else "site.json")).write_text(content or "mine")
    before = {name: path.read_bytes() for name, path in files_of(tmp_path / "site").items()}
    with pytest.raises(UsageError, match="not a site"):
        write_site(tmp_path / "site", CITY, two, [])
    assert {name: path.read_bytes() for name, path in files_of(tmp_path / "site").items()} == before


def test_a_listing_that_names_files_elsewhere_removes_none(two, tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    (tmp_path / "site").mkdir()
    names = ["../kept.txt", str(tmp_path / "kept.txt"), "a/../../kept.txt"]
    (tmp_path / "site/site.json").write_text(json.dumps({"files": names, "reports": {}}))
    write_site(tmp_path / "site", CITY, two, [])
    assert (tmp_path / "kept.txt").read_text() == "mine"


def test_a_file_that_was_changed_after_its_release_is_not_published(two, tmp_path):
    (two[1].folder / "cells.csv").write_text("hex_id\n")
    with pytest.raises(StoreDamagedError, match="not the one that was published"):
        write_site(tmp_path / "site", CITY, two, [])
    assert not (tmp_path / "site/r0001/cells.csv").exists()


@pytest.fixture
def axe():
    """Deque's axe-core, which finds what people with a screen reader or a keyboard cannot use."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("axe-playwright-python is not installed: make test installs it")
    return Axe()


@pytest.fixture(scope="module")
def changed(city, earlier_city):
    return ChangeTable.of(city, earlier_city)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(
    ("width", "places"),
    [
        (390, ("server",)),
        (1280, ("disk",)),
        *(pytest.param(width, ("server", "disk"), marks=pytest.mark.prove) for width in (390, 1280)),
    ],
)
def test_it_is_read_in_a_browser_from_a_folder_of_a_server_and_from_disk(
    two, tmp_path, chromium, width, places
):
    (tmp_path / "sub").mkdir()
    write_site(tmp_path / "sub/site", CITY, two, [])
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        try:
            roots = {
                "server": f"http://127.0.0.1:{server.server_port}/sub/site/",
                "disk": (tmp_path / "sub/site").as_uri() + "/",
            }
            for place in places:
                visit(chromium, roots[place], width)
        finally:
            server.shutdown()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.prove)])
def test_axe_finds_no_page_hard_to_reach(
    axe, publish, pooled, rush_hours, changed, tmp_path, chromium, width
):
    releases = [publish(rush_hours, "r0002"), publish(pooled, "r0001")]
    releases[0] = replace(releases[0], changes=changed.page)
    write_site(tmp_path / "site", CITY, releases, ["r0000"])
    # what is at latest/ is at r0002/ too, byte for byte
    names = [
        name
        for name in files_of(tmp_path / "site")
        if name.endswith(".html") and not name.startswith("latest/")
    ]
    assert {name.split("/")[-1] for name in names} == {INDEX, MAP, REPORT, CHANGES}
    page, violations = chromium.new_page(viewport={"width": width, "height": 900}), {}
    for name in names:
        page.goto((tmp_path / "site" / name).as_uri())
        if name.endswith(MAP):
            page.locator("html[data-drawn]").wait_for(state="attached")
        for each in axe.run(page).response["violations"]:
            violations[name, each["id"]] = [node["html"] for node in each["nodes"]]
    page.close()
    assert violations == {}


def visit(chromium, root, width):
    page, wrong = chromium.new_page(viewport={"width": width, "height": 900}), []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.goto(f"{root}index.html")
    # wide enough for a page in a page, or a link alone
    assert page.locator("iframe").is_visible() == (width > 800)
    if width > 800:
        page.frame_locator("iframe").locator("html[data-drawn]").wait_for(state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("link", name="r0001", exact=True).click()
    assert "Release r0001" in page.inner_text("header")
    if width > 800:
        # a request that is left on the way fails
        page.frame_locator("iframe").locator("html[data-drawn]").wait_for(state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("link", name="Open the map").click()
    page.locator("html[data-drawn]").wait_for(state="attached")
    page.close()
    assert wrong == []
