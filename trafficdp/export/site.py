"""A folder that any web server shows: every published release with its map, report, files and catalogue.

It holds the released files as they are, and pages that follow from them. All links are relative, so that it
works under any address and without a server. Built again, only what is new is written; files that an earlier
build wrote and this one does not are removed, and no others: ``site.json`` lists them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from trafficdp._durable import disk_errors, read_regular, replace_file
from trafficdp.errors import StoreDamagedError, UsageError
from trafficdp.export.files import catalogue
from trafficdp.export.files.language import Language, fill_template
from trafficdp.export.files.manifest import Manifest
from trafficdp.export.write import MANIFEST
from trafficdp.model import CatalogueEntry

SITE = "site.json"
INDEX, CATALOG, FEED, MAP, REPORT = "index.html", "catalog.jsonld", "feed.atom", "map.html", "report.html"
CATALOG_OF_US = "data.json"
CHANGES = "changes.html"
LATEST = "latest"
"""The folder of the newest map, at an address that stays."""
_NAME = re.compile(r"(?:\w[\w.-]*/)?\w[\w.-]*")
"""A file of a site."""
_ATOM, _XML = "http://www.w3.org/2005/Atom", "http://www.w3.org/XML/1998/namespace"


@dataclass(frozen=True)
class PublishedRelease:
    """A release as it lies in the store: its manifest and its folder.

    ``report`` makes its report, None where there is nothing to tell; ``against`` is what it compares with.
    ``changes`` makes the page of what changed since an earlier map, None where there is none to compare with.
    """

    manifest: Manifest
    folder: Path
    report: Callable[[], bytes | None]
    against: str | None
    changes: Callable[[], bytes | None] = lambda: None

    @property
    def id(self) -> str:
        """Name of the release."""
        return self.manifest.identity.release

    @property
    def is_map(self) -> bool:
        """Whether it is one of the city's own maps, not the answer to a question."""
        return self.manifest.identity.question is None


@dataclass(frozen=True)
class SiteCity:
    """The city that a site is about, as the configuration has it now."""

    name: str
    publisher: str
    entry: CatalogueEntry

    @property
    def contact_of_us(self) -> str | None:
        """The e-mail address for the DCAT-US catalogue.

        None where the contact is no e-mail address, or the pages have no address.
        """
        told = self.entry.contact is not None and not self.entry.contact.startswith("http")
        return self.entry.contact if told and self.entry.landing_page is not None else None


def write_site(
    folder: Path, city: SiteCity, published: Sequence[PublishedRelease], withdrawn: Sequence[str]
) -> list[str]:
    """Write the site into ``folder``; return the names of the files that changed.

    ``published`` are the newest first; of the ``withdrawn`` a page says so. Raises UsageError for a folder
    that holds anything else than a site, StoreDamagedError for a released file that is not the one of its
    manifest, and what ``replace_file`` raises.
    """
    newest = next((each for each in published if each.is_map), next(iter(published), None))
    wanted = {f"{each.id}/{name}" for each in published for name in (*_names(each), REPORT, INDEX)}
    if newest:
        wanted |= {f"{LATEST}/{name}" for name in (*_names(newest), REPORT, CHANGES, INDEX)}
        wanted.add(f"{newest.id}/{CHANGES}")
    wanted |= {INDEX, CATALOG, CATALOG_OF_US, FEED, *(f"{name}/{INDEX}" for name in withdrawn)}
    site = _SiteFolder.opened(folder, wanted)
    reports = {each.id: [each.against, each.manifest.identity.software.version] for each in published}
    rows = []
    for each in published:
        known = site.reports.get(each.id) == reports[each.id]
        report = (site.read(f"{each.id}/{REPORT}") if known else None) or each.report()
        changed = each.changes() if each is newest else None
        row = _Row(each.manifest, report is not None, changed is not None)
        rows.append(row)
        files = {name: _released_file(each, name) for name in _names(each)}
        if report is not None:
            files[REPORT] = report
        if changed is not None:
            files[CHANGES] = changed
        replaced = newest.id if newest and each.is_map and newest is not each else None
        files[INDEX] = _page(city, "release", row=row, newer=replaced)
        for name, content in files.items():
            site.write(f"{each.id}/{name}", content)
            if each is newest:
                site.write(f"{LATEST}/{name}", content)
    for name in withdrawn:
        site.write(f"{name}/{INDEX}", _page(city, "withdrawn", name=name))
    first = next((row for row in rows if newest and row.id == newest.id), None)
    site.write(INDEX, _page(city, "index", rows=rows, newest=first, withdrawn=withdrawn))
    listed = [(each.manifest, row.distributed) for each, row in zip(published, rows, strict=True)]
    portal = catalogue.catalogue(city.name, city.publisher, city.entry, listed)
    site.write(CATALOG, catalogue.document_bytes(portal))
    if city.contact_of_us is not None:
        site.write(
            CATALOG_OF_US, catalogue.document_bytes(catalogue.catalogue_of_us(portal, city.contact_of_us))
        )
    if city.entry.landing_page is not None and rows:
        site.write(FEED, _feed(city, city.entry.landing_page.rstrip("/"), rows))
    site.finish(reports)
    return site.changed


def _names(release: PublishedRelease) -> list[str]:
    return [*(file.name for file in release.manifest.files), MANIFEST]


def _released_file(release: PublishedRelease, name: str) -> bytes:
    """Return a file of a release, as it was published."""
    stated = {file.name: file.sha256 for file in release.manifest.files}
    path = release.folder / name
    try:
        content = read_regular(path)
    except OSError:
        content = None
    if content is None or (name in stated and hashlib.sha256(content).hexdigest() != stated[name]):
        raise StoreDamagedError(
            "a file of a release is not the one that was published",
            got=str(path),
            todo=f"see `trafficdp verify {release.id}`; restore it from what was published",
        )
    return content


class _Row:
    """The facts that pages of the site state about one release."""

    def __init__(self, facts: Manifest, has_report: bool, has_changes: bool) -> None:
        self.facts, self.has_report, self.has_changes = facts, has_report, has_changes
        self.id, self.language = facts.identity.release, Language.of(facts.catalogue.language)
        self.is_map = facts.identity.question is None
        self.day = facts.identity.created_at[:10]
        self.distributed = [file for file in facts.files if file.name not in catalogue.CATALOGUE_FILES]
        self.has_map = any(file.name == MAP for file in facts.files)
        licence = facts.catalogue.licence
        self.licence = None if licence is None else (licence, catalogue.licence_address(licence))
        contact = facts.catalogue.contact
        address = contact if contact is None or contact.startswith("http") else f"mailto:{contact}"
        self.contact = None if contact is None else (contact, address)

    def files(self) -> Iterable[tuple[str, str, str, str]]:
        """(name, meaning, size, SHA-256) of each file that can be downloaded."""
        for file in self.distributed:
            yield file.name, catalogue.TITLES.get(file.name, file.name), _size(file.bytes), file.sha256


def _size(count: int) -> str:
    """Return a number of bytes as people read it."""
    for limit, unit in ((10**6, "MB"), (10**3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} bytes"


def _page(city: SiteCity, kind: str, **values: object) -> bytes:
    row = values.get("row")
    language = row.language if isinstance(row, _Row) else Language.of(city.entry.language)
    blank = {"row": None, "newer": None, "rows": (), "newest": None, "withdrawn": (), "name": ""}
    return fill_template("site.html", language, city=city, kind=kind, **{**blank, **values}).encode()


def _feed(city: SiteCity, address: str, rows: Sequence[_Row]) -> bytes:
    """Return the releases as an Atom feed (RFC 4287): addresses there must be whole."""
    ElementTree.register_namespace("", _ATOM)
    language = Language.of(city.entry.language)
    feed = ElementTree.Element(f"{{{_ATOM}}}feed", {f"{{{_XML}}}lang": language.tag})

    def add(parent: ElementTree.Element, name: str, text: str | None = None, **given: str) -> None:
        ElementTree.SubElement(parent, f"{{{_ATOM}}}{name}", given).text = text

    add(feed, "id", f"{address}/")
    add(feed, "title", language.gettext("Traffic speeds of {place}", place=city.name))
    add(feed, "updated", rows[0].facts.identity.created_at)
    author = ElementTree.SubElement(feed, f"{{{_ATOM}}}author")
    add(author, "name", city.publisher)
    add(feed, "link", rel="self", href=f"{address}/{FEED}")
    add(feed, "link", rel="alternate", href=f"{address}/")
    for row in rows:
        entry = ElementTree.SubElement(feed, f"{{{_ATOM}}}entry")
        add(entry, "id", f"{address}/{row.id}/")
        facts, period = {"place": row.facts.coverage.place}, row.facts.coverage.period
        facts |= {
            "first": language.localise_dates(period.first),
            "last": language.localise_dates(period.last),
        }
        title = language.gettext("Traffic speeds of {place}, {first} to {last}", **facts)
        add(entry, "title", f"{title} ({row.id})")
        add(entry, "updated", row.facts.identity.created_at)
        add(entry, "link", rel="alternate", href=f"{address}/{row.id}/{INDEX}")
        add(entry, "summary", language.translate_sentence(row.facts.guarantee.in_words))
    ElementTree.indent(feed)
    text: bytes = ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


class _SiteFolder:
    """The folder of a site: the files of an earlier call, and those that this call writes."""

    def __init__(
        self, folder: Path, wanted: set[str], files: set[str], reports: Mapping[str, object]
    ) -> None:
        self._folder, self._wanted = folder, wanted
        self.files, self.reports = {name for name in files if _NAME.fullmatch(name)}, reports
        self._written: set[str] = set()
        self.changed: list[str] = []

    @classmethod
    def opened(cls, folder: Path, wanted: set[str]) -> _SiteFolder:
        """Return the site in ``folder``, which is made if missing; ``wanted`` names the files to be written.

        Raises UsageError for a folder with files that is not a site.
        """
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
            if not any(folder.iterdir()):
                return cls(folder, wanted, set(), {})
        try:
            listing = json.loads(read_regular(folder / SITE))
            return cls(folder, wanted, {*map(str, listing["files"])}, dict(listing["reports"]))
        except (OSError, ValueError, KeyError, TypeError):
            raise UsageError(
                "this folder is not a site",
                got=f"{folder}, which has files and no {SITE}",
                expected="an empty folder, a new one, or that of an earlier `trafficdp site`",
            ) from None

    def read(self, name: str) -> bytes | None:
        """Return a file that an earlier call wrote, None without one."""
        path = self._folder / name
        return read_regular(path) if name in self.files and path.is_file() else None

    def write(self, name: str, content: bytes) -> None:
        """Write ``content`` to the file ``name``, unless the file has these bytes already."""
        path = self._folder / name
        self._written.add(name)
        with disk_errors(path):
            path.parent.mkdir(exist_ok=True)
            if path.is_file() and read_regular(path) == content:
                return
        if not self.changed:
            # whatever ends this call, the next one knows what it may have written
            self._list(self.files | self._wanted, self.reports)
        replace_file(path, content)
        self.changed.append(name)

    def finish(self, reports: Mapping[str, object]) -> None:
        """Remove files that only an earlier call wrote, and write the list of the files that remain."""
        for name in sorted(self.files - self._written):
            path = self._folder / name
            with disk_errors(path):
                if path.is_file():
                    path.unlink()
                    self.changed.append(name)
                if path.parent.is_dir() and not any(path.parent.iterdir()):
                    path.parent.rmdir()
        self._list(self._written, reports)

    def _list(self, files: set[str], reports: Mapping[str, object]) -> None:
        content = catalogue.document_bytes({"files": sorted(files), "reports": dict(sorted(reports.items()))})
        path = self._folder / SITE
        if not path.is_file() or read_regular(path) != content:
            replace_file(path, content)
