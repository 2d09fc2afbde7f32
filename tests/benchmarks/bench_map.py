"""How large and how fast the offline map is, beside the plainest page that draws the same cells.

    python tests/benchmarks/bench_map.py [--cells N ...]

For every number of cells, in headless Chromium and from a file: bytes of the page, as it is and in gzip; time
from navigation until every cell is drawn, and processor time of the browser's main thread until then on the
screen of a telephone, which takes some four times as long; and time of a frame while sixteen zooms follow
each other without a pause (a browser waits for the painting of earlier frames). The ``plain`` page has one
SVG path a cell in one colour and zooms by its view box: what the map is measured against. Medians of five;
ratios count, milliseconds depend on the machine.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import h3
import numpy as np
from playwright.sync_api import Browser, sync_playwright

from trafficdp.binning.cells import polygons_of
from trafficdp.export.map.drawing import Drawing
from trafficdp.export.map.html_map import html_bytes
from trafficdp.model import Statistic

REPEATS = 5
LOADED = "performance.now()"
TELEPHONE: Any = {
    "viewport": {"width": 360, "height": 740}, "device_scale_factor": 3, "is_mobile": True, "has_touch": True
}  # fmt: skip
FRAME = """async () => {
  const frame = () => new Promise(done => requestAnimationFrame(done));
  await frame();
  const start = performance.now(), turns = 16;
  for (let turn = 0; turn < turns; turn += 1) {
    document.getElementById(turn % 2 ? "out" : "in").click();
    await frame();
  }
  await frame();
  await frame();
  return (performance.now() - start) / turns;
}"""
PLAIN = """<!doctype html><html><body><button id="in">+</button><button id="out">-</button>
<svg id="map" viewBox="0 0 {width} {height}" style="width:100%;height:48rem">{paths}</svg><script>
const map = document.getElementById("map"), whole = map.getAttribute("viewBox");
const near = "{width4} {height4} {width2} {height2}";
document.getElementById("in").onclick = () => map.setAttribute("viewBox", near);
document.getElementById("out").onclick = () => map.setAttribute("viewBox", whole);
document.documentElement.dataset.drawn = map.children.length;
</script></body></html>"""


def simulated() -> ModuleType:
    """Return the module that makes up releases for the tests of exports."""
    path = Path(__file__).parents[1] / "unit" / "export" / "conftest.py"
    spec = importlib.util.spec_from_file_location("simulated", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def release_of(cells: int) -> Any:
    """Return a release of means and variances of so many cells around one place."""
    rings = 0
    while 3 * rings * (rings + 1) + 1 < cells:
        rings += 1
    names = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 9), rings)[:cells]
    return simulated().release_of(names, statistics=(Statistic.MEAN, Statistic.VARIANCE))


def plain_page(release: Any) -> bytes:
    """Return the page that ours is measured against; its cells say nothing but a colour."""
    polygons = polygons_of(np.unique(release.cell))
    drawing = Drawing.of(polygons)
    paths = "".join(f'<path fill="#31688e" stroke="#595959" d="{path}"/>' for path in drawing.paths(polygons))
    width, height = drawing.width, drawing.height
    page = PLAIN.replace("{paths}", paths)
    sizes = {
        "width": width, "height": height, "width2": width // 2, "height2": height // 2,
        "width4": width // 4, "height4": height // 4,
    }  # fmt: skip
    for name, size in sizes.items():
        page = page.replace(f"{{{name}}}", str(size))
    return page.encode()


def main_thread_ms(events: list[dict[str, Any]]) -> float:
    """Return the processor time of the tasks of a page's main thread."""
    names = {
        (each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"
    }
    tasks = [each for each in events if each["name"] == "ThreadControllerImpl::RunTask"]
    main = [each for each in tasks if names.get((each["pid"], each["tid"])) == "CrRendererMain"]
    return float(sum(each.get("tdur", 0) for each in main)) / 1000


def measured(browser: Browser, page: bytes, folder: Path) -> tuple[float, float, float]:
    """Return milliseconds until all is drawn, of the main thread until then, and of a frame: medians."""
    target = folder / "map.html"
    target.write_bytes(page)
    found = []
    for _ in range(REPEATS):
        tab = browser.new_page(**TELEPHONE)
        browser.start_tracing(page=tab, categories=["toplevel"])
        tab.goto(target.as_uri())
        tab.locator("html[data-drawn]").wait_for(state="attached")
        thread = main_thread_ms(json.loads(browser.stop_tracing())["traceEvents"])
        tab.close()
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(target.as_uri())
        tab.locator("html[data-drawn]").wait_for(state="attached")
        found.append((float(tab.evaluate(LOADED)), thread, float(tab.evaluate(FRAME))))
        tab.close()
    load, thread, frame = np.median(found, axis=0).tolist()
    return load, thread, frame


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, nargs="+", default=[1_000, 5_000, 20_000])
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("no chromium on this machine")
    print(
        f"{'cells':>7} {'page':>6} {'bytes':>10} {'gzip':>9} {'load ms':>8} {'thread ms':>10} {'frame ms':>9}"
    )
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for cells in parser.parse_args().cells:
            release = release_of(cells)
            found = {}
            for name, page in (("ours", html_bytes(release)), ("plain", plain_page(release))):
                found[name] = measured(browser, page, Path(folder))
                size = f"{len(page):>10,} {len(gzip.compress(page)):>9,}"
                load, thread, frame = found[name]
                print(f"{cells:>7,} {name:>6} {size} {load:>8.0f} {thread:>10.0f} {frame:>9.0f}")
            load, thread, frame = np.divide(found["ours"], found["plain"])
            print(f"{'':>7} {'ratio':>6} {'':>20} {load:>8.2f} {thread:>10.2f} {frame:>9.2f}")
        browser.close()


if __name__ == "__main__":
    main()
