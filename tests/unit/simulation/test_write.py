"""A simulated city as files: the same seed, the same bytes; the truth is that of the records."""

import json
import tracemalloc

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import trafficdp
from trafficdp.binning.cells import cell_text, cells_of
from trafficdp.errors import UsageError
from trafficdp.simulation import write
from trafficdp.simulation.city import CityModel
from trafficdp.simulation.traffic import SENTINEL

ROUGH = CityModel(repeats=0.05, sentinels=0.04, missing=0.03, lost=0.02, late=0.2)


def made(folder, **changes):
    return trafficdp.simulate(folder, **{"vehicles": 30, "days": 3, "seed": 5, "model": ROUGH, **changes})


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    return made(tmp_path_factory.mktemp("city") / "made")


def rows_of(city):
    tables = [pq.read_table(path) for path in city.feeds]
    return pa.concat_tables(tables).to_pandas()


@pytest.fixture(scope="module")
def rows(city):
    return rows_of(city)


def usable(rows):
    """The rows that ingest keeps: one of each vehicle and time, with a position and a speed."""
    rows = rows.drop_duplicates(["vehicle", "time"])
    return rows[(rows.latitude != 0) & rows.speed.notna() & (rows.speed != SENTINEL)]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_seed_gives_the_same_bytes_and_another_seed_others(city, tmp_path):
    again = made(tmp_path / "again")
    other = made(tmp_path / "other", seed=6)
    assert content(again.folder) == content(city.folder)
    differing = {name for name, found in content(other.folder).items() if found != content(city.folder)[name]}
    assert differing == {path.name for path in (*city.feeds, city.truth)}


def test_the_truth_is_a_recount_of_the_records(city, rows):
    kept = usable(rows)
    assert len(rows) == city.rows
    assert len(kept) == city.records
    centi = np.rint(kept.speed.to_numpy() * 100).astype(np.int64)
    kept = kept.assign(
        hex_id=cell_text(cells_of(kept.latitude.to_numpy(), kept.longitude.to_numpy(), 7)),
        hour=kept.time.dt.hour.astype(np.int64),
        centi=centi,
        centi2=centi**2,
    )
    recount = kept.groupby(["hex_id", "hour"]).agg(
        records=("centi", "size"), sum_centi=("centi", "sum"), sum_centi2=("centi2", "sum"),
        mean=("speed", "mean"), variance=("speed", lambda speed: speed.var(ddof=0)),
    )  # fmt: skip
    truth = pq.read_table(city.truth).to_pandas().set_index(["hex_id", "hour"]).sort_index()
    assert truth.index.equals(recount.index)
    for name in ("records", "sum_centi", "sum_centi2"):
        assert (truth[name] == recount[name]).all()
    np.testing.assert_allclose(truth.mean_ms, recount["mean"], rtol=1e-12)
    np.testing.assert_allclose(truth.variance_m2s2, recount.variance, rtol=1e-9, atol=1e-9)


def test_the_truth_says_whose_it_is_and_draws_its_hexagons(city):
    metadata = pq.read_schema(city.truth).metadata
    assert metadata[b"trafficdp"].startswith(b"truth of simulated data")
    assert json.loads(metadata[b"geo"])["primary_column"] == "geometry"
    frame = geopandas.read_parquet(city.truth)
    assert frame.crs == "OGC:CRS84"
    assert frame.geometry.is_valid.all()
    centre = shapely.centroid(frame.geometry.to_numpy())
    found = cells_of(shapely.get_y(centre), shapely.get_x(centre), 7)
    assert cell_text(found) == frame.hex_id.to_list()


def test_ingest_keeps_exactly_the_records_that_the_truth_counts(city, tmp_path):
    workspace = trafficdp.open(city.config, store=tmp_path / "store", create=True)
    done = workspace.ingest(city.feeds)
    assert {finding.verdict for each in done for finding in each.report.lint} == {"pass"}
    assert sum(each.report.rows_in for each in done) == city.rows
    assert sum(each.report.rows_kept for each in done) == city.records


def test_no_trip_is_repeated_on_another_day(rows):
    # no vehicle goes from one place (to 10 cm) to the next twice; on a copied day it would always
    seen = rows[rows.latitude != 0].drop_duplicates(["vehicle", "time"])
    seen = seen.assign(day=seen.time.dt.date)[["vehicle", "latitude", "longitude", "day"]]
    step = seen.join(seen.shift(-1).add_suffix("_next"))
    assert step.day.nunique() == 3
    assert not step.duplicated(["latitude", "longitude", "latitude_next", "longitude_next"]).any()


def test_flaws_are_as_many_as_asked(rows):
    share = {
        "repeats": rows.duplicated(["vehicle", "time"]).mean(),
        "sentinels": (rows.speed == SENTINEL).mean(),
        "missing": rows.speed.isna().mean(),
        "lost": (rows.latitude == 0).mean(),
    }
    for name, found in share.items():
        wanted = getattr(ROUGH, name)
        # six standard deviations of as many independent rows
        assert abs(found - wanted) < 0.1 * wanted + 6 * np.sqrt(wanted / len(rows)), name


def test_late_rows_arrive_whole_vehicles_at_a_time_with_the_next_day(city):
    first = pq.read_table(city.feeds[0]).to_pandas()
    second = pq.read_table(city.feeds[1]).to_pandas()
    late = second[second.time.dt.date == first.time.dt.date.min()]
    assert 0 < len(late) < len(first)
    assert not set(late.vehicle) & set(first.vehicle)
    # the last file holds what the last day still owes
    last = pq.read_table(city.feeds[-1]).to_pandas()
    assert len(city.feeds) == 4
    assert last.time.dt.date.nunique() == 1


@pytest.mark.slow
def test_it_is_written_group_by_group(tmp_path, monkeypatch):
    # what is held follows the size of a group, not that of the city
    monkeypatch.setattr(write, "GROUP_ROWS", 4_000)
    peaks = {}
    for vehicles in (150, 1_500):
        tracemalloc.start()
        city = made(tmp_path / str(vehicles), vehicles=vehicles, days=1, model=CityModel(late=0.0))
        peaks[vehicles] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        feed = pq.ParquetFile(city.feeds[0]).metadata
        groups = [feed.row_group(number).num_rows for number in range(feed.num_row_groups)]
        assert sum(groups) == city.rows
        assert len(groups) > vehicles * 60 / 4_000
        assert max(groups) < 3 * 4_000
    assert peaks[1_500] < 2 * peaks[150]


@pytest.mark.parametrize(
    "wrong",
    [
        {"vehicles": 0},
        {"days": 0},
        {"seed": -1},
        {"resolution": 11},
        {"days": 10_000, "vehicles": 10_000, "model": CityModel(interval=1, trips_a_day=100)},
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path, wrong):
    with pytest.raises(UsageError):
        made(tmp_path / "made", **wrong)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_left_alone(city):
    before = content(city.folder)
    with pytest.raises(UsageError, match="exists"):
        made(city.folder)
    assert content(city.folder) == before


def test_nothing_is_left_of_a_city_that_was_interrupted(tmp_path):
    def interrupt(_text, done, _of):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "made", step=interrupt)
    assert not list(tmp_path.iterdir())
