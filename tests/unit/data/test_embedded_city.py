"""The committed data sets are what their generators make and have the figures that are claimed for them."""

from __future__ import annotations

import csv
import gzip
import math
import runpy
import statistics
import sys
import tomllib
import zipfile
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import h3
import pytest

DATA = Path(__file__).parents[3] / "data"
UPPER = 65

CENTRE = {"8742d9d69ffffff", "8742d98b4ffffff", "8742d999affffff"}
RING = {
    "8742d98b5ffffff",
    "8742d999bffffff",
    "8742d9998ffffff",
    "8742d98b0ffffff",
    "8742d98b2ffffff",
    "8742d9d4dffffff",
    "8742d9d4cffffff",
}


def read(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def unpacked(path: Path) -> list[bytes]:
    if path.suffix == ".gz":
        return [gzip.decompress(path.read_bytes())]
    with zipfile.ZipFile(path) as archive:
        return [each.filename.encode() + archive.read(each) for each in archive.infolist()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "folder"), [("make_itms_counts.py", "itms_counts"), ("make_sample.py", "sample")]
)
def test_generator_makes_the_committed_bytes(
    script: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(DATA)
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path)])
    runpy.run_path(str(DATA / script), run_name="__main__")
    committed = sorted([*(DATA / folder).glob("*.csv.gz"), *(DATA / folder).glob("*.zip")])
    assert [file.name for file in committed] == sorted(file.name for file in tmp_path.iterdir())
    for file in committed:
        made = tmp_path / file.name
        assert unpacked(made) == unpacked(file)
        if "ng" not in zlib.ZLIB_RUNTIME_VERSION:  # zlib-ng compresses otherwise
            assert made.read_bytes() == file.read_bytes()


def test_streets_river_parks_and_places_are_what_their_generator_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(DATA)
    monkeypatch.setattr(sys, "argv", ["make_streets.py", str(tmp_path)])
    runpy.run_path(str(DATA / "make_streets.py"), run_name="__main__")
    committed = sorted((DATA / "sample").glob("*.geojson"))
    assert [file.name for file in committed] == sorted(file.name for file in tmp_path.iterdir())
    for file in committed:
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_committed_files_hold_no_time_and_stay_small() -> None:
    files = [*DATA.glob("itms_counts/*.gz"), *DATA.glob("sample/*.gz")]
    assert len(files) == 5
    assert all(file.read_bytes()[4:8] == bytes(4) for file in files)
    with zipfile.ZipFile(DATA / "sample" / "timetable.zip") as archive:
        assert {each.date_time for each in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert sum(file.stat().st_size for file in files) < 1_000_000


# --- the papers' bin -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts() -> list[int]:
    rows = read(DATA / "itms_counts" / "counts.csv.gz")
    assert [int(row["user"]) for row in rows] == list(range(217))
    return [int(row["count"]) for row in rows]


@pytest.fixture(scope="module")
def values() -> dict[int, list[int]]:
    result: dict[int, list[int]] = defaultdict(list)
    for row in read(DATA / "itms_counts" / "values.csv.gz"):
        result[int(row["user"])].append(int(row["value_centi"]))
    return result


def cap_by_argmax(counts: list[int]) -> int:
    """Maximise (sum min(m_l, m))^2 / m exactly, ties to the largest m."""
    return max(set(counts), key=lambda m: (Fraction(sum(min(count, m) for count in counts) ** 2, m), m))


def best_fit_arrays(counts: list[int], cap: int) -> int:
    fills: list[int] = []
    for size in sorted((min(count, cap) for count in counts), reverse=True):
        fitting = [place for place, fill in enumerate(fills) if fill + size <= cap]
        if fitting:
            fills[max(fitting, key=lambda place: (fills[place], -place))] += size
        else:
            fills.append(size)
    return len(fills)


def test_counts_have_the_published_figures(counts: list[int]) -> None:
    assert len(counts) == 217
    assert (min(counts), max(counts), sum(counts)) == (1, 417, 17_166)
    assert statistics.median(counts) == 46


def test_counts_give_the_published_numbers_of_arrays(counts: list[int]) -> None:
    cap = cap_by_argmax(counts)
    assert cap == 50
    assert sum(min(count, cap) for count in counts) // cap == 160
    assert best_fit_arrays(counts, cap) == 164


def test_values_belong_to_the_counted_users_and_lie_within_the_bound(
    counts: list[int], values: dict[int, list[int]]
) -> None:
    assert {user: len(row) for user, row in values.items()} == dict(enumerate(counts))
    assert all(0 <= value <= 100 * UPPER for row in values.values() for value in row)


def published(pooled: list[int]) -> tuple[str, str]:
    """Return population mean and variance of values in 0.01 km/h, to the printed digits."""
    mean = Fraction(sum(pooled), len(pooled))
    variance = Fraction(sum(value * value for value in pooled), len(pooled)) - mean**2
    return f"{float(mean / 100):.5f}", f"{float(variance / 10_000):.3f}"


def test_values_have_the_published_mean_and_variance(values: dict[int, list[int]]) -> None:
    assert published([value for row in values.values() for value in row]) == ("20.66769", "115.135")


def test_users_differ_moderately(values: dict[int, list[int]]) -> None:
    pooled = [value for row in values.values() for value in row]
    centre = statistics.fmean(pooled)
    between = sum(len(row) * (statistics.fmean(row) - centre) ** 2 for row in values.values()) / len(pooled)
    assert between / statistics.pvariance(pooled) == pytest.approx(0.122, abs=0.001)
    assert math.sqrt(between) / 100 == pytest.approx(3.7, abs=0.05)


# --- the embedded city -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    plate: str
    time: datetime
    latitude: float
    longitude: float
    centi: int


@dataclass(frozen=True)
class City:
    kept: list[list[Row]]  # a list a file
    rejected: Counter[str]
    spellings: set[str]
    samples: dict[str, Counter[str]]  # fixes by cell and plate
    speeds: dict[str, list[float]]  # km/h by cell


@pytest.fixture(scope="module")
def config() -> dict[str, dict[str, object]]:
    return tomllib.loads((DATA / "sample" / "trafficdp.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def city(config) -> City:
    west, south, east, north = config["city"]["study_area"]["bbox"]
    kept, rejected, seen, spellings = [], Counter(), set(), set()
    samples, speeds = defaultdict(Counter), defaultdict(list)
    for file in sorted((DATA / "sample").glob("*.csv.gz")):
        rows = []
        for raw in read(file):
            plate = raw["license_plate"].upper().replace(" ", "").replace("-", "")
            latitude, longitude = float(raw["latitude"]), float(raw["longitude"])
            time = datetime.fromisoformat(raw["observationDateTime"])
            reasons = {
                "vehicle": plate in ("", "NA"),
                "zero": latitude == longitude == 0,
                "area": not (west <= longitude <= east and south <= latitude <= north),
                "missing": raw["speed"] == "",
                "sentinel": raw["speed"] != "" and float(raw["speed"]) in config["source"][0]["sentinels"],
                "duplicate": (plate, time) in seen,
            }
            reason = next((name for name, holds in reasons.items() if holds), None)
            if reason:
                rejected[reason] += 1
                continue
            seen.add((plate, time))
            spellings.add(raw["license_plate"])
            centi = int(raw["speed"].replace(".", ""))
            rows.append(Row(plate, time, latitude, longitude, centi))
            cell = h3.latlng_to_cell(latitude, longitude, config["map"]["resolution"])
            samples[cell][plate] += 1
            speeds[cell].append(centi / 100)
        kept.append(rows)
    return City(kept, rejected, spellings, samples, speeds)


def scale_of_means(city: City, config, *, variances: bool) -> float:
    """Return the equal Laplace scale b in km/h of the means of the cells that may be shown."""
    loss: Counter[str] = Counter()
    for plates in city.samples.values():
        if len(plates) < config["map"]["min_vehicles"]:
            continue
        total = plates.total()
        for plate, own in plates.items():
            assert own <= total // 2, "the joint formula below holds for vehicles below one half"
            loss[plate] += UPPER * own / total
            if variances:  # U^2 m (N - m) / N^2 at scale U b
                loss[plate] += UPPER * own * (total - own) / total**2
    return max(loss.values()) / config["privacy"]["epsilon"]


def test_flaws_are_few_and_the_kept_rows_are_the_published_number(city: City) -> None:
    assert sum(len(rows) for rows in city.kept) == 17_166
    assert city.rejected == {
        "duplicate": 40,
        "missing": 15,
        "zero": 12,
        "sentinel": 9,
        "vehicle": 4,
        "area": 1,
    }


def test_normalised_plates_are_the_217_buses_with_the_same_counts(city: City, counts: list[int]) -> None:
    fixes = Counter(row.plate for rows in city.kept for row in rows)
    assert len(fixes) == 217
    assert len(city.spellings) > 300
    assert sorted(fixes.values()) == sorted(counts)


def test_pooled_speeds_are_those_of_the_papers_bin(city: City, values: dict[int, list[int]]) -> None:
    speeds = [row.centi for rows in city.kept for row in rows]
    assert sorted(speeds) == sorted(value for row in values.values() for value in row)
    assert published(speeds) == ("20.66769", "115.135")


def test_fixes_lie_in_the_declared_days_with_the_citys_offset(city: City, config) -> None:
    period = config["city"]["period"]
    days = {row.time.date() for rows in city.kept for row in rows}
    assert (min(days), max(days)) == (date.fromisoformat(period["from"]), date.fromisoformat(period["to"]))
    assert len(days) == len(city.kept) == 3
    assert {row.time.utcoffset() for rows in city.kept for row in rows} == {timedelta(hours=5, minutes=30)}


def test_at_most_20_cells_of_which_two_have_too_few_buses(city: City, config) -> None:
    assert len(city.samples) == 17
    few = [len(plates) for plates in city.samples.values() if len(plates) < config["map"]["min_vehicles"]]
    assert sorted(few) == [2, 3]


def test_reported_and_derived_speeds_agree_in_every_file(city: City) -> None:
    for rows in city.kept:
        ordered = sorted(rows, key=lambda row: (row.plate, row.time))
        ratios = []
        for before, after in pairwise(ordered):
            seconds = (after.time - before.time).total_seconds()
            if before.plate != after.plate or not 2 <= seconds <= 120:
                continue
            start, end = (before.latitude, before.longitude), (after.latitude, after.longitude)
            derived = h3.great_circle_distance(start, end, unit="m") / seconds
            reported = after.centi / 360
            if derived > 1 and reported > 1:
                ratios.append(derived / reported)
        assert len(ratios) > 4000
        assert statistics.median(ratios) == pytest.approx(1.0, abs=0.02)


def test_map_passes_the_refusal_rule_at_the_configured_epsilon(city: City, config) -> None:
    scale = scale_of_means(city, config, variances=True)
    assert scale * (1 - math.exp(-UPPER / (2 * scale))) <= UPPER / 8
    assert scale == pytest.approx(2.967, abs=0.001)
    assert scale_of_means(city, config, variances=False) == pytest.approx(1.602, abs=0.001)


def test_map_would_be_refused_at_a_third_of_the_epsilon(city: City, config) -> None:
    scale = 3 * scale_of_means(city, config, variances=True)
    assert scale * (1 - math.exp(-UPPER / (2 * scale))) > UPPER / 8


def test_slow_centre_and_fast_ring_stand_out_of_the_noise(city: City, config) -> None:
    mean = {cell: statistics.fmean(speeds) for cell, speeds in city.speeds.items()}
    centre, ring = [mean[cell] for cell in CENTRE], [mean[cell] for cell in RING]
    assert max(centre) < 14
    assert min(ring) > 28
    assert min(ring) - max(centre) > 4.5 * scale_of_means(city, config, variances=True)


def test_budget_covers_the_configured_release(config) -> None:
    assert config["privacy"]["epsilon"] <= config["budget"]["epsilon_per_vehicle"]
