"""The city report: one page for an engineer and a councillor, as HTML that asks no network, or as PDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trafficdp.errors import UsageError, one_of
from trafficdp.export.files.file import replace_file, require_folder_of
from trafficdp.export.map.templating import fill_template
from trafficdp.export.report.contents import Contents
from trafficdp.export.report.panel import HEIGHT, LEFT, RIGHT, WIDTH
from trafficdp.privacy.release import Release

if TYPE_CHECKING:
    from types import ModuleType

FORMATS = ("html", "pdf")
"""What a report can be written as: the ending of its file name."""


def write_report(release: Release, path: Path, *, earlier: Release | None = None) -> None:
    """Write the report of ``release`` to ``path``, as HTML or PDF by its ending.

    With ``earlier`` it says what changed since. Raises UsageError for another ending, for two releases that
    cannot be compared, and where PDF is asked for and WeasyPrint or its libraries are missing; DataError for
    a release without bins or disclosure; and what ``replace_file`` raises.
    """
    kind = one_of(FORMATS, format=path.suffix.lower().removeprefix("."))
    require_folder_of(path)
    render = {"html": report_html, "pdf": report_pdf}[kind]
    replace_file(path, render(release, earlier))


def report_html(release: Release, earlier: Release | None = None) -> bytes:
    """Return the report as UTF-8 HTML; the same releases give the same bytes. Raises as ``write_report``."""
    return _page(release, earlier, paper=False).encode()


def report_pdf(release: Release, earlier: Release | None = None) -> bytes:
    """Return the report as a tagged PDF (PDF/UA-1) on A4. Raises as ``write_report``.

    The same releases give the same bytes on the same machine (fonts are those of the machine).
    """
    weasyprint = pdf_writer()
    html = weasyprint.HTML(
        string=_page(release, earlier, paper=True),
        base_url="about:blank",
        # nothing is fetched: a page that asks for a file is a bug
        url_fetcher=weasyprint.urls.URLFetcher(allowed_protocols=()),
    )
    identifier = f"{release.id} {release.ledger.head_hash}".encode()
    document: bytes = html.write_pdf(pdf_variant="pdf/ua-1", pdf_identifier=identifier)
    return document


def pdf_writer() -> ModuleType:
    """Return WeasyPrint; raise UsageError that says what to install when it cannot be loaded."""
    try:
        import weasyprint
        import weasyprint.urls
    except ImportError as error:
        raise UsageError(
            "PDF reports need WeasyPrint, which is not installed",
            todo="run pip install 'trafficdp[report]', or write .html and print it from a browser",
        ) from error
    except OSError as error:
        raise UsageError(
            "PDF reports need Pango, a library of the system that is missing",
            todo="install it (Debian, Ubuntu: apt-get install libpango-1.0-0 libpangoft2-1.0-0 "
            "libharfbuzz-subset0), or write .html and print it from a browser",
        ) from error
    module: ModuleType = weasyprint
    return module


def _page(release: Release, earlier: Release | None, *, paper: bool) -> str:
    contents = Contents.of(release, earlier)
    return fill_template(
        "report.html",
        page=contents.page(),
        paper=paper,
        panel={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT},
    )
