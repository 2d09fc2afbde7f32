"""How large and how fast the offline map is: beside the plainest page of the same cells, and on a telephone.

    python tests/benchmarks/bench_map.py [--cells N ...] [--only plain|telephone]

``plain``: for every number of cells, in headless Chromium and from a file: bytes of the page, as it is and
in gzip; time from navigation until every cell is drawn, and processor time of the browser's main thread until
then on the screen of a telephone; and time of a frame while sixteen zooms follow each other without a pause
(a browser waits for the painting of earlier frames). The ``plain`` page has one SVG path a cell in one colour
and zooms by its view box: what the map is measured against. Medians of five; ratios count, milliseconds
depend on the machine.

``telephone``: maps of 5,000 hexagons, one slot and 24, without and with 2,000 streets, from a web server that
packs with gzip, over 9 Mbit/s with 60 ms of latency, with a processor as it is and slowed down four times. A
script in the page marks when the first hexagon is filled, and when the frame with it has been handed over for
painting. Written to `data/bench/table.md`.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import h3
import numpy as np
import shapely
from playwright.sync_api import Browser, sync_playwright
from table import keep

from trafficdp.binning.cells import polygons_of
from trafficdp.export.map.drawing import Drawing
from trafficdp.export.map.html_map import html_bytes
from trafficdp.model import ContextKind, ContextLayer, SlotKind, Statistic
from trafficdp.privacy.release import SlotFacts

REPEATS = 5
LOADED = "performance.now()"
TELEPHONE: Any = {
    "viewport": {"width": 390, "height": 844}, "device_scale_factor": 3, "is_mobile": True, "has_touch": True
}  # fmt: skip
SLOW_NETWORK = {
    "offline": False, "latency": 60, "downloadThroughput": 9e6 / 8, "uploadThroughput": 3e6 / 8
}  # fmt: skip
MARKS = """(() => {
  const canvas = CanvasRenderingContext2D.prototype, own = canvas.fill;
  canvas.fill = function (...given) {
    if (this.canvas.closest(".leaflet-cells-pane")) {
      canvas.fill = own;
      performance.mark("filled");
      // the next task behind the frame that is being made
      scheduler.postTask(() => performance.mark("painted"), { priority: "user-blocking" });
    }
    return own.apply(this, given);
  };
})()"""
MARKED = """() => Object.fromEntries(
  performance.getEntriesByType("mark").map(mark => [mark.name, mark.startTime]))"""
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


def release_of(cells: int, *, slots: int = 1, streets: int = 0) -> Any:
    """Return a release of means, with a posterior, and variances of so many cells around one place."""
    rings = 0
    while 3 * rings * (rings + 1) + 1 < cells:
        rings += 1
    names = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 9), rings)[:cells]
    made = simulated()
    hours = {hour: SlotFacts(f"{hour:02d}:00 to {hour + 1:02d}:00", None, None) for hour in range(slots)}
    release = made.release_of(
        names,
        statistics=(Statistic.MEAN, Statistic.VARIANCE),
        slot_kind=SlotKind.WHOLE_PERIOD if slots == 1 else SlotKind.HOUR_OF_DAY,
        slots=None if slots == 1 else hours,
        context=(streets_of(streets),) if streets else (),
    )
    return made.with_posterior(release)


def streets_of(number: int) -> ContextLayer:
    """Return so many bent lines of 20 corners, 2 km long, around the same place."""
    random = np.random.default_rng(1)
    shapes = []
    for _ in range(number):
        turn = random.uniform(0, 2 * np.pi) + random.normal(0, 0.2, 20)
        steps = np.column_stack([np.cos(turn), np.sin(turn)]) * 0.001
        start = np.array([-97.74, 30.27]) + random.uniform(-0.12, 0.12, 2)
        shapes.append(shapely.LineString(start + np.cumsum(steps, axis=0)))
    names = tuple(f"Street {each}" for each in range(number))
    return ContextLayer(ContextKind.ROADS, "roads.gpkg", "c" * 64, "Nobody", names, tuple(shapes))


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


def main_thread_ms(events: list[dict[str, Any]], until: float = np.inf) -> float:
    """Return the processor time of a page's main thread, in what began before ``until`` (microseconds)."""
    names = {
        (each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"
    }
    main = [
        each
        for each in events
        if each["ph"] == "X" and names.get((each["pid"], each["tid"])) == "CrRendererMain"
    ]
    total, end = 0.0, -np.inf
    # tasks are made of tasks: the outermost count
    for each in sorted(main, key=lambda each: (each["ts"], -each["dur"])):
        if end <= each["ts"] <= until:
            total += each.get("tdur", 0)
            end = each["ts"] + each["dur"]
    return total / 1000


@contextmanager
def served(page: bytes) -> Iterator[str]:
    """The address of ``page`` on this machine, packed with gzip as web servers do."""
    packed = gzip.compress(page, 6)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(packed)))
            self.end_headers()
            self.wfile.write(packed)

        def log_message(self, *told: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def first_map(browser: Browser, address: str, slower: int) -> dict[str, float]:
    """Return, in milliseconds, when the first hexagon is painted, and processor time."""
    tab = browser.new_page(**TELEPHONE)
    tab.add_init_script(MARKS)
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", SLOW_NETWORK)
    session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
    browser.start_tracing(page=tab, categories=["toplevel", "blink.user_timing"])
    tab.goto(address, wait_until="load")
    marks: dict[str, float] = {}
    # the page is left alone: a driver that looks for something takes processor time in it
    while "painted" not in marks:
        tab.wait_for_timeout(1_500)
        marks = tab.evaluate(MARKED)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    metrics = session.send("Performance.getMetrics")["metrics"]
    tab.close()
    painted = next(each["ts"] for each in events if each["name"] == "painted")
    found = {each["name"]: 1000 * each["value"] for each in metrics if each["name"].endswith("Duration")}
    return found | marks | {"thread": main_thread_ms(events, painted)}


def telephone(browser: Browser) -> None:
    """Measure the first map of 5,000 hexagons on a telephone; print it, and write it to the table."""
    rows = []
    for slots, streets in ((1, 0), (24, 0), (1, 2_000), (24, 2_000)):
        page = html_bytes(release_of(5_000, slots=slots, streets=streets))
        before = page.partition(b'<script type="application/json" class="later">')[0]
        sizes = [f"{len(gzip.compress(each, 6)) / 1000:,.0f}" for each in (before, page)]
        for slower in (1, 4):
            with served(page) as address:
                found = [first_map(browser, address, slower) for _ in range(REPEATS)]
            columns = ("thread", "painted", "TaskDuration", "ScriptDuration", "LayoutDuration")
            times = [f"{np.median([each[name] for each in found]):,.0f}" for name in columns]
            rows.append([f"{slots}, {streets:,}", str(slower), *sizes, *times])
            print("  ".join(rows[-1]))
    keep(
        "First map on a telephone",
        "Pages of 5,000 hexagons with means and variances in headless Chromium, 390 by 844 points, from a "
        "web server that packs with gzip, over 9 Mbit/s with 60 ms of latency, with a processor as it is and "
        "slowed down four times. kB: what the first map needs, and the page. Milliseconds: of the main "
        "thread's processor until the first hexagon is painted; of the clock until then, from the start of "
        "navigation; and of the main thread's processor for tasks, and among them scripts and layout, until "
        "everything is there, all slots, streets and names. Medians of five.",
        ("slots, streets", "slowed", "kB first", "kB", "first map", "clock", "tasks", "scripts", "layout"),
        rows,
    )


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


def plain(browser: Browser, numbers: list[int]) -> None:
    """Measure maps of so many cells beside the plainest page of the same, and print."""
    print(
        f"{'cells':>7} {'page':>6} {'bytes':>10} {'gzip':>9} {'load ms':>8} {'thread ms':>10} {'frame ms':>9}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for cells in numbers:
            release = release_of(cells)
            found = {}
            for name, page in (("ours", html_bytes(release)), ("plain", plain_page(release))):
                found[name] = measured(browser, page, Path(folder))
                size = f"{len(page):>10,} {len(gzip.compress(page)):>9,}"
                load, thread, frame = found[name]
                print(f"{cells:>7,} {name:>6} {size} {load:>8.0f} {thread:>10.0f} {frame:>9.0f}")
            load, thread, frame = np.divide(found["ours"], found["plain"])
            print(f"{'':>7} {'ratio':>6} {'':>20} {load:>8.2f} {thread:>10.2f} {frame:>9.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, nargs="+", default=[1_000, 5_000, 20_000])
    parser.add_argument("--only", choices=("plain", "telephone"))
    asked = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("no chromium on this machine")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        if asked.only != "telephone":
            plain(browser, asked.cells)
        if asked.only != "plain":
            telephone(browser)
        browser.close()


if __name__ == "__main__":
    main()
