"""The map in a real Chromium at three widths: it looks as it did, nothing overflows, all can be touched."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
REFERENCES = Path(__file__).parent / "screenshots"
SCREENS = (360, 768, 1440)


def small(png):
    """A picture of 48 columns, RGB: layout and colours without the letters of a font."""
    with Image.open(io.BytesIO(png)) as picture:
        rows = round(picture.height * 48 / picture.width)
        return np.asarray(picture.convert("RGB").resize((48, rows), Image.Resampling.BOX), dtype=np.int64)


@pytest.mark.parametrize("width", SCREENS)
def test_the_map_looks_as_it_did_nothing_overflows_and_everything_can_be_touched(width, rush_hours, drawn):
    """Write new references with TRAFFICDP_WRITE_SCREENSHOTS=1, and look at them before committing."""
    page = drawn(rush_hours, width)
    page.settle()
    png, reference = page.page.locator(".map").screenshot(), REFERENCES / f"map_{width}.png"
    if os.environ.get("TRAFFICDP_WRITE_SCREENSHOTS") == "1":
        with Image.open(io.BytesIO(png)) as picture:
            picture.quantize(48).save(reference, optimize=True)
    expected, found = small(reference.read_bytes()), small(png)
    assert found.shape == expected.shape
    assert np.abs(found - expected).mean() < 4
    turned = found[::-1]
    assert np.abs(turned - expected).mean() > 12, "the comparison would not see another map"
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    for control in page.page.locator("button, select, input").all():
        size = control.bounding_box()
        assert min(size["width"], size["height"]) >= 40
        assert size["x"] + size["width"] <= width
    picture, card = (page.page.locator(each).bounding_box() for each in (".map", "#card"))
    beside = card["x"] >= picture["x"] + picture["width"]
    below = card["y"] >= picture["y"] + picture["height"]
    assert (beside, below) == ((True, False) if width == 1440 else (False, True))
