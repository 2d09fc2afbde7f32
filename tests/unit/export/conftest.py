from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction

import h3
import numpy as np
import pytest
import shapely
from playwright.sync_api import sync_playwright

from trafficdp.context.read import place_names
from trafficdp.export.files.disclosure import (
    Charge,
    Noise,
    Verdict,
    bounds_of,
    coverage_of,
    disclosure,
)
from trafficdp.export.map.html_map import html_bytes
from trafficdp.mechanisms.protocol import Statement
from trafficdp.model import (
    OF_MAPS,
    ContextKind,
    ContextLayer,
    ContributionBound,
    Grid,
    MapRequest,
    NeighbouringRelation,
    Period,
    SlotKind,
    SpeedUnit,
    Statistic,
    StudyArea,
    rfc3339,
    zone_of,
)
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.disclosure import (
    INTERVAL_KINDS,
    BinNumbers,
    Calibration,
    Data,
    DeclaredUnit,
    Identity,
    NoiseStated,
    RecordSource,
    Software,
)
from trafficdp.privacy.estimate import BinStatus, Estimate, IntervalKind, RefusalRule
from trafficdp.privacy.loss import PureDP
from trafficdp.privacy.release import LedgerReference, Release, SlotFacts

MS, KMH = SpeedUnit.METRES_PER_SECOND, SpeedUnit.KILOMETRES_PER_HOUR
RELATION = NeighbouringRelation.REPLACE_USER_VALUES
BOUND = ContributionBound(upper=Fraction(30), step=Fraction(1, 10), unit=MS)
AUSTIN = StudyArea.from_bbox(-98.1, 30.0, -97.4, 30.6)
PACIFIC = StudyArea.from_bbox(170, -30, -170, 20)
HEIGHTS = {360: 740, 768: 1000, 1440: 900}
"""Of screens that are so wide."""

HOURS = {hour: SlotFacts(f"{hour:02d}:00 to {hour + 1:02d}:00", None, None) for hour in (7, 8, 17)}
WHOLE = {0: SlotFacts("2016-11-24 to 2016-11-27", "2016-11-24T00:00:00-06:00", "2016-11-28T00:00:00-06:00")}
CALENDAR = {
    1479970800: SlotFacts("2016-11-24 01:00", "2016-11-24T01:00:00-06:00", "2016-11-24T02:00:00-06:00"),
    1479974400: SlotFacts("2016-11-24 02:00", "2016-11-24T02:00:00-06:00", "2016-11-24T03:00:00-06:00"),
}


def estimate_of(statistic: Statistic, status: np.ndarray, seed: int) -> Estimate:
    draw = np.random.default_rng(seed)
    upper = statistic.largest(30)
    bins = len(status)
    value = draw.uniform(0.1, 0.9, bins) * upper * (1 if statistic is Statistic.VARIANCE else 0.7)
    scale = draw.uniform(0.01, 0.08, bins) * upper
    own = status.copy()
    if statistic is Statistic.VARIANCE and bins > 5:
        own[5] = BinStatus.CONSTANT
    value[own == BinStatus.CONSTANT], scale[own == BinStatus.CONSTANT] = 0.0, 0.0
    scale[own == BinStatus.UNINFORMATIVE] = upper
    low, high = np.maximum(value - 3 * scale, 0), np.minimum(value + 3 * scale, upper)
    withheld = own == BinStatus.WITHHELD
    numbers = [np.where(withheld, np.nan, column) for column in (value, low, high, scale, scale * 300, scale)]
    return Estimate(
        statistic,
        *numbers[:4],
        expected_error=numbers[5],
        status=own,
        noise={"lattice_scale": numbers[4]},
    )


def release_of(
    cells: list[str],
    *,
    slot_kind: SlotKind = SlotKind.WHOLE_PERIOD,
    slots: dict[int, SlotFacts] | None = None,
    area: StudyArea = AUSTIN,
    statistics: tuple[Statistic, ...] = (Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN),
    publish_counts: bool = False,
    place: str = "Austin",
    created_at: datetime = datetime(2016, 12, 1, 9, 30, tzinfo=UTC),
    display_unit: SpeedUnit = KMH,
    first_seed: int = 0,
    context: tuple[ContextLayer, ...] = (),
) -> Release:
    """A release of all cells in all slots; bins 1 mod 7 are withheld, 3 mod 11 uninformative."""
    slots = WHOLE if slots is None else slots
    numbers = sorted(h3.str_to_int(cell) for cell in cells)
    cell = np.repeat(np.array(numbers, dtype=np.uint64), len(slots))
    slot = np.tile(np.array(sorted(slots), dtype=np.int64), len(cells))
    status = np.full(len(cell), BinStatus.RELEASED, dtype=object)
    status[3::11] = BinStatus.UNINFORMATIVE
    status[1::7] = BinStatus.WITHHELD
    estimates = {each: estimate_of(each, status, seed) for seed, each in enumerate(statistics, first_seed)}
    period = Period(date(2016, 11, 24), date(2016, 11, 27), "America/Chicago")
    grid = Grid(h3.get_resolution(cells[0]), slot_kind, area, period, context=context)
    counts = np.arange(len(cell), dtype=np.int64) + 5 if publish_counts else None
    statements = {
        each: Statement(
            mechanism="baseline",
            citation=None,
            sensitivity="U m / N" if each.power == 1 else "U^2 k (N - k) / N^2",
            noise_scale=estimates[each].noise_scale,
            worst_case_bias=0.05,
            share=None,
            distribution="discrete Laplace on whole numbers",
            sampler="OpenDP make_laplace (discrete Laplace on integers)",
            interval_basis="exact tail of the discrete Laplace noise, widened by the worst-case bias",
            post_processing=f"{each.column(display_unit)} is clamped to its range",
        )
        for each in OF_MAPS
        if each in estimates
    }
    request = MapRequest(BOUND, 5, 0.95, display_unit, publish_counts)
    disclosed = disclosure(
        identity=Identity(
            release="R0001",
            publisher="City of Austin",
            software=Software(name="trafficdp", version="0.1.0", commit="1c45bac"),
            created_at=rfc3339(created_at, zone_of(period.time_zone)),
            supersedes=None,
        ),
        coverage=coverage_of(grid, request, place, RELATION, BinNumbers.of(status)),
        data=Data(
            sources=(
                RecordSource(
                    name="buses",
                    format="gtfs_rt_csv",
                    units=(DeclaredUnit(unit="m/s", first=None, last=None),),
                    cleaning=("Repeated records are kept once.",),
                    speed="reported",
                ),
            ),
            data_version="a" * 64,
        ),
        bounds=bounds_of(BOUND, "speeds are clipped to the range; nothing is dropped", 41, 300),
        charge=Charge(
            relation=RELATION,
            loss=PureDP.of("3.999999999999"),
            sum_before=PureDP.of("1"),
            budget=BudgetPolicy(PureDP.of("8")),
            composition="basic composition: a vehicle's loss is the sum of its losses over bins",
        ),
        noise=Noise(
            request=request,
            statements=statements,
            noise=NoiseStated(kind="laplace"),
            tuning_data="none: chosen from public counts",
            tolerance={each: 1.0 if each.power == 1 else 30.0 for each in statements},
            library="opendp 0.16.0",
        ),
        verdict=Verdict(False, 1.0, 0.5, RefusalRule.INTERVAL),
    )
    return Release(
        id="R0001",
        created_at=created_at,
        grid=grid,
        request=request,
        cell=cell,
        slot=slot,
        status=status,
        place=place_names(cell, grid.context),
        vehicles=counts,
        records=None if counts is None else counts * 10,
        estimates=estimates,
        slots=slots,
        ledger=LedgerReference(2, "b" * 64),
        disclosure=disclosed,
    )


def with_posterior(release: Release) -> Release:
    """The same with a calibrated mean and what a posterior says of it: intervals, city, chances."""
    mean = release.estimates[Statistic.MEAN]
    low, high = (mean.value + 0.6 * (end - mean.value) for end in (mean.low, mean.high))
    slower = np.clip((15.0 - mean.value) / 10, 0.0, 1.0)
    found = {
        "low_50": 0.5 * (mean.value + low),
        "high_50": 0.5 * (mean.value + high),
        "low_80": low,
        "high_80": high,
        "city": np.where(np.isnan(low), np.nan, 12.0),
        "slower_chance": slower,
        "faster_chance": np.clip(0.8 - slower, 0.0, 1.0),
    }
    estimates = {**release.estimates, Statistic.MEAN: replace(mean, posterior=found)}
    said = Calibration(
        tuned_on="simulated days",
        level=0.95,
        held_on_other_days=0.93,
        held_on_worst_map=None,
        held_in_other_city=None,
        in_words="Tuned on simulated days.",
    )
    first, *rest = release.disclosure.mechanisms
    first = replace(first, interval_kind=IntervalKind.CALIBRATED.value, calibration=said)
    uncertainty = replace(release.disclosure.uncertainty, interval_kind=INTERVAL_KINDS["calibrated"])
    disclosed = replace(release.disclosure, mechanisms=(first, *rest), uncertainty=uncertainty)
    return replace(release, estimates=estimates, disclosure=disclosed)


def austin_cells(rings: int, resolution: int = 7) -> list[str]:
    return h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, resolution), rings)


def antimeridian_cells() -> list[str]:
    """Cells around Fiji, some on either side of the antimeridian and some across it."""
    return h3.grid_disk(h3.latlng_to_cell(-17.0, 180.0, 4), 2)


def pentagon_cells() -> list[str]:
    return h3.grid_disk(next(cell for cell in h3.get_pentagons(7) if h3.cell_to_latlng(cell)[0] > 30), 2)


@pytest.fixture(scope="session")
def make_release() -> Callable[..., Release]:
    return release_of


@pytest.fixture(scope="session")
def large_city() -> Release:
    """5,000 cells in 24 hours, with a posterior."""
    cells = h3.grid_disk(h3.latlng_to_cell(30.3, -97.75, 8), 41)[:5_000]
    hours = {hour: SlotFacts(f"{hour:02d}:00 to {hour + 1:02d}:00", None, None) for hour in range(24)}
    area, statistics = StudyArea.from_bbox(-99.5, 28.6, -96, 32), (Statistic.MEAN, Statistic.VARIANCE)
    kind = SlotKind.HOUR_OF_DAY
    return with_posterior(release_of(cells, area=area, statistics=statistics, slot_kind=kind, slots=hours))


@pytest.fixture(scope="session")
def city() -> Release:
    """Whole period, 61 cells."""
    return release_of(austin_cells(4))


@pytest.fixture(scope="session")
def pooled() -> Release:
    """The same with a posterior of the mean."""
    return with_posterior(release_of(austin_cells(4)))


@pytest.fixture(scope="session")
def scheduled(pooled) -> Release:
    """The same beside a timetable, which serves all hexagons but the last."""
    mean = pooled.estimates[Statistic.MEAN]
    speed = np.linspace(4.0, 16.0, pooled.bins)
    speed[-1] = np.nan
    shares = {"": mean.value, "_low": mean.low, "_high": mean.high}
    found = {"scheduled": speed} | {f"of_scheduled{end}": each / speed for end, each in shares.items()}
    mean = replace(mean, posterior=mean.posterior | found)
    return replace(pooled, estimates=pooled.estimates | {Statistic.MEAN: mean})


@pytest.fixture(scope="session")
def earlier_city() -> Release:
    """The same as ``city`` a week earlier, with numbers of its own: what a report compares it with."""
    release = release_of(austin_cells(4), first_seed=50)
    period = Period(date(2016, 11, 17), date(2016, 11, 20), "America/Chicago")
    return replace(release, id="R0000", grid=replace(release.grid, period=period))


def layer_of(kind: str, name: str, shape: shapely.Geometry) -> ContextLayer:
    return ContextLayer(
        ContextKind(kind), f"{kind}.gpkg", "c" * 64, "Survey of nowhere (public domain)", (name,), (shape,)
    )


@pytest.fixture(scope="session")
def surrounded() -> Release:
    """The ``city`` with a street, a river, a park and two places."""
    layers = (
        layer_of("roads", "Shell Road", shapely.LineString([(-97.9, 30.27), (-97.6, 30.27)])),
        layer_of("water", "Still River", shapely.LineString([(-97.8, 30.4), (-97.7, 30.1)])),
        layer_of("park", "Long Green", shapely.box(-97.78, 30.3, -97.74, 30.33)),
        layer_of("place", "Harbour", shapely.Point(-97.68, 30.31)),
        layer_of("place", "Hill End", shapely.Point(-97.8, 30.2)),
    )
    return release_of(austin_cells(4), context=layers)


@pytest.fixture(scope="session")
def rush_hours() -> Release:
    """Recurring slots: three hours of the day, 37 cells."""
    return release_of(austin_cells(3), slot_kind=SlotKind.HOUR_OF_DAY, slots=HOURS)


@pytest.fixture(scope="session")
def calendar() -> Release:
    """Slots on the calendar, with published counts."""
    return release_of(austin_cells(2), slot_kind=SlotKind.CALENDAR_HOUR, slots=CALENDAR, publish_counts=True)


@pytest.fixture(scope="session")
def fiji() -> Release:
    """Cells across the antimeridian."""
    return release_of(antimeridian_cells(), area=PACIFIC, place="Fiji")


@pytest.fixture(scope="session")
def pentagon() -> Release:
    """A pentagon and its neighbours."""
    return release_of(pentagon_cells())


@pytest.fixture(scope="session")
def globe() -> Release:
    """All 842 cells of resolution 1: pentagons, both poles and the whole antimeridian."""
    cells = [cell for base in h3.get_res0_cells() for cell in h3.cell_to_children(base, 1)]
    return release_of(cells, place="Everywhere")


@pytest.fixture(scope="session")
def thousand() -> Release:
    """One thousand cells, whole period, mean and variance."""
    return release_of(austin_cells(18, 8)[:1000], statistics=(Statistic.MEAN, Statistic.VARIANCE))


@pytest.fixture(
    scope="session", params=["city", "pooled", "rush_hours", "calendar", "fiji", "pentagon", "globe"]
)
def any_release(request: pytest.FixtureRequest) -> Release:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium for the tests of one file."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no chromium on this machine, and CI may not skip the browser tests")
        pytest.skip("no chromium on this machine")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class MapPage:
    """A page with the map in it, everything that it asked for and everything that it complained of."""

    def __init__(self, page):
        self.page, self.asked, self.complaints = page, [], []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", self.hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def hear(self, message):
        # about this test's own reading of pixels
        if "willReadFrequently" not in message.text:
            self.complaints.append(message.text)

    def go(self, address):
        self.page.goto(address)
        self.wait("html[data-drawn]")
        return self

    def wait(self, selector):
        """Wait for an element; not for a predicate, whose evaluation the page's policy forbids."""
        self.page.locator(selector).wait_for(state="attached")

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def press(self, *keys):
        self.page.focus("#map")
        for key in keys:
            self.page.keyboard.press(key)

    def settle(self):
        """Wait until what was asked for is painted, a zoom that glides included."""
        self.wait("#map:not([data-gliding=true]):not(.leaflet-zoom-anim)")
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def on_screen(self, places):
        """Where places (latitude, longitude) are in the window, shape (n, 2)."""
        return np.array(
            self.page.evaluate(
                """places => { const map = document.getElementById("map"), r = map.getBoundingClientRect();
                return places.map(p => { const at = map.leaflet.latLngToContainerPoint(p);
                  return [at.x + r.left, at.y + r.top]; }); }""",
                places.tolist(),
            )
        )

    def point_at(self, place):
        """Move the mouse to a place; the map looks at it at most every 32 ms."""
        self.page.wait_for_timeout(40)
        self.page.mouse.move(*self.on_screen(place[None])[0].tolist())

    def colours(self, places):
        """The colour of the hexagons in a small square around every place: (n, 81, 3)."""
        self.settle()
        # as text, for playwright looks at numbers one by one
        found = self.page.evaluate(
            """points => { const c = document.querySelector(".leaflet-cells-pane canvas");
            const r = c.getBoundingClientRect(), pen = c.getContext("2d"), k = c.width / r.width;
            return JSON.stringify(points.map(p => Array.from(
              pen.getImageData(Math.round((p[0] - r.left) * k) - 4,
                Math.round((p[1] - r.top) * k) - 4, 9, 9).data))); }""",
            self.on_screen(places).tolist(),
        )
        return np.array(json.loads(found)).reshape(len(places), 81, 4)[:, :, :3]


@pytest.fixture(scope="session")
def map_page() -> type[MapPage]:
    """The class of pages with a map in them."""
    return MapPage


@pytest.fixture
def drawn(chromium, tmp_path):
    """``drawn(release)``: the whole map of ``release`` in the browser; afterwards, that nothing was wrong."""
    pages = []

    def drawn(release, width=1440, **options):
        (tmp_path / "map.html").write_bytes(html_bytes(release))
        page = chromium.new_page(viewport={"width": width, "height": HEIGHTS[width]}, **options)
        pages.append(MapPage(page).go((tmp_path / "map.html").as_uri()))
        assert page.get_attribute("html", "data-drawn") == str(len(np.unique(release.cell)))
        first = (release.slot == release.slot[0]).sum()
        assert pages[-1].text("#summary").startswith(f"{first} hexagons: ")
        return pages[-1]

    yield drawn
    for one in pages:
        assert one.asked == [(tmp_path / "map.html").as_uri()]
        assert one.complaints == []
        one.page.close()
