"""What portals are told: all of it may be left out, and what is there is checked."""

import pytest
from languages import CATALOGUES

from trafficdp.config.settings import LANGUAGES
from trafficdp.model import CatalogueEntry

TOLD = {
    "licence": "CC-BY-4.0",
    "contact": "opendata@example.org",
    "landing_page": "https://data.example.org/speeds/",
    "keywords": ["buses", "open data"],
    "language": "de-AT",
}


def test_nothing_need_be_told(load, minimal):
    assert load(minimal).catalogue == CatalogueEntry()


def test_what_is_told_is_read(load, minimal, changed):
    found = load(changed("publish", TOLD, minimal)).catalogue
    assert found == CatalogueEntry(**{**TOLD, "keywords": ("buses", "open data")})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("licence", wrong) for wrong in ("CC BY 4.0", "", "unknown", 4, "ftp://example.org/licence")),
        *(("contact", wrong) for wrong in ("opendata", "a b@example.org", "@example.org", "mailto:a")),
        *(("landing_page", wrong) for wrong in ("data.example.org", "https://", "https://a.org/<b>")),
        *(("keywords", wrong) for wrong in ("buses", [""], ["unknown"], ["a", "a"], [1])),
        *(("language", wrong) for wrong in ("German", "DE", "d", "de_AT", "nl", "deu")),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(refusal, minimal, changed, key, value):
    assert f"[publish] {key}" in refusal(changed("publish", {**TOLD, key: value}, minimal))


def test_a_language_that_no_page_is_in_is_refused_with_those_that_there_are(refusal, minimal, changed):
    said = refusal(changed("publish", {**TOLD, "language": "nl"}, minimal))
    assert ", ".join(LANGUAGES) in said
    assert sorted([*CATALOGUES, "en"]) == [*LANGUAGES]
