"""Leaflet, which draws the map: one file that becomes a part of every page, so that no page asks for it.

It is kept beside this module as its authors wrote it, with its licence; its version and hashes are here, and
a test holds the files to them. To renew it: ``npm pack leaflet@VERSION``, compare the archive's hash with the
one that the registry states, copy dist/leaflet.js, dist/leaflet.css and LICENSE over the three files, write
version and hashes here, and run the tests in a browser.

Why Leaflet: 162 kB a page, drawn on canvas, letters of the page's own fonts. MapLibre GL takes 1,128 kB, and
it needs WebGL, which a locked-down or old computer has not, and letters as files of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from markupsafe import Markup

VERSION = "1.9.4"
ARCHIVE = "sha512-nxS1ynzJOmOlHp+iL3FyWqK89GtNL8U8rvlMOsQdTTssxZwCXh8N2NB3GDQOL+YR3XnWyZAxwQixURb+FA74PA=="
"""Of the npm archive leaflet-1.9.4.tgz, as the registry states it ("integrity")."""
SHA256 = {
    "LICENSE": "53e8dc25862014e4324741ca18fbe3611e11d42ef69f59f86ea8c5389647d4cb",
    "leaflet.css": "a7837102824184820dfa198d1ebcd109ff6d0ff9a2672a074b9a1b4d147d04c6",
    "leaflet.js": "db49d009c841f5ca34a888c96511ae936fd9f5533e90d8b2c4d57596f4e5641a",
}
_FOLDER = files("trafficdp.export").joinpath("map/leaflet")


@dataclass(frozen=True)
class Library:
    """What a page takes up: a style sheet and a script, as they are."""

    css: Markup
    script: Markup


def content(name: str) -> bytes:
    """Return one of the files of SHA256."""
    return _FOLDER.joinpath(name).read_bytes()


def _kept() -> Library:
    css, script = (content(name).decode() for name in ("leaflet.css", "leaflet.js"))
    # the pictures of controls that the page has not, and the map of the script's source, are other files
    plain = "\n".join(line for line in css.splitlines() if "url(" not in line)
    return Library(Markup(plain), Markup(script.partition("//# sourceMappingURL")[0]))


LIBRARY = _kept()
