"""Pictures of the page, as the README shows them: the embedded city in Chromium, at three widths.

    python pipelines/pictures.py

writes docs/images/map_360.png, map_768.png, map_1440.png, site_390.png and site_1280.png. A release draws
its noise anew, so numbers differ from one run to the next. Look at them before they are committed.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import trafficdp

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "data" / "sample"
IMAGES = ROOT / "docs" / "images"
SCREENS = {360: 900, 768: 1024, 1440: 900}
"""Heights by widths."""
SITE_SCREENS = {390: 800, 1280: 1150}
"""The same of the first page of its site."""


def site_of_the_embedded_city(folder: Path) -> Path:
    """Return the site of a release of the embedded city, made in ``folder``."""
    city = trafficdp.open(SAMPLE / "trafficdp.toml", store=folder / "city.store", create=True)
    city.ingest(sorted(SAMPLE.glob("*.csv.gz")))
    city.release()
    city.site(folder / "site")
    return folder / "site"


def save(page: Page, name: str) -> None:
    """Write what ``page`` shows, in few colours."""
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        # an octree keeps the colours of the key, of which there is little to see
        few = picture.convert("RGB").quantize(255, Image.Quantize.FASTOCTREE)
        few.save(IMAGES / f"{name}.png", optimize=True)


def main() -> None:
    """Write the pictures."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("no chromium on this machine")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        site = site_of_the_embedded_city(Path(folder))
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        IMAGES.mkdir(exist_ok=True)
        for width, height in SCREENS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto((site / "latest" / "map.html").as_uri())
            page.locator("html[data-drawn]").wait_for(state="attached")
            page.fill("#search", "Old City")
            page.press("#search", "Enter")
            page.fill("#search", "")
            page.click("#all")
            page.evaluate("document.activeElement.blur()")
            save(page, f"map_{width}")
        for width, height in SITE_SCREENS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto((site / "index.html").as_uri())
            if page.locator("iframe").is_visible():
                page.frame_locator("iframe").locator("html[data-drawn]").wait_for(state="attached")
            save(page, f"site_{width}")
        browser.close()


if __name__ == "__main__":
    main()
