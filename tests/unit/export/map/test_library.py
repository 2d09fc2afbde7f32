"""The library in the page is the one that its authors published, whole and with its licence."""

from __future__ import annotations

import hashlib

import pytest

from trafficdp.export.map.html_map import LIBRARY, SHA256, VERSION, content


@pytest.mark.parametrize("name", SHA256)
def test_the_files_are_those_that_were_published(name):
    assert hashlib.sha256(content(name)).hexdigest() == SHA256[name]


def test_version_and_licence_are_what_is_said():
    assert f"Leaflet {VERSION}," in content("leaflet.js").decode()[:200]
    assert content("LICENSE").decode().startswith("BSD 2-Clause License")


def test_what_a_page_takes_up_can_neither_ask_for_files_nor_end_its_element():
    assert "url(" not in LIBRARY["css"]
    assert "</style" not in LIBRARY["css"]
    assert "</script" not in LIBRARY["script"]
    assert "sourceMappingURL" not in LIBRARY["script"]
