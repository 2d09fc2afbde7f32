"""Nothing leaves the vault as a function of records except through noise that is paid for.

Two stores hold neighbouring data, under the same key, the same random names and the same clock. The noise is
chosen so that both publish the same numbers: noise = output - exact; that it is nearly as likely in either is
the theorem of the mechanism. Then every byte that can leave must be equal: files, rows and size of
`released.duckdb`, what every command prints, plain and as JSON, and every exit code.

What may differ is listed here: the output of `ingest`, which is for the curator's eyes, and the vault itself.
"""

import re
import shutil
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from neighbouring_stores import (
    CONFIG,
    HIDDEN,
    VICTIM,
    Clock,
    Script,
    World,
    differing,
    feed,
    modules_with_clocks,
    other_speeds,
    without,
)

from trafficdp.errors import UsageError
from trafficdp.export.report.change_files import FORMATS as CHANGE_FORMATS
from trafficdp.export.write import FORMATS
from trafficdp.ingest import read as ingest_read
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.release import intake, specification
from trafficdp.release.curator import Curator
from trafficdp.sensitive import Contributions
from trafficdp.store import vault_fixes, vault_ledger


def acts(world, copied, *, force=(), closely=False):
    """What may be done to a store, in every order that matters: read, take back, forget, ask again.

    ``closely``: the same is asked after what writes nothing too.

    Files hold something in one of the stores only, or have the bytes of another in one of them only:
    ``copied`` are the rows of the copy of the first day.
    """
    first, second = (f"{day}.csv" for day in world.rows)
    world.write("copy.csv", copied)
    own = [row for row in world.rows["2026-03-03"] if row[0] == VICTIM]
    # as if the second source had sent them as well
    for name in ("own.csv", "vans-own.csv"):
        world.write(name, own)

    def asked():
        """The price of the same map now, and what the ledger says; closely, of a question too."""
        for questions in (["plan"], ["ledger"]):
            world.command("--json", *questions)
        if closely:
            world.command("--json", "sql", f"EXPLAIN {BY_HOUR}")
            world.command("--json", "releases")

    def read(*arguments, code=0):
        assert world.command("ingest", *arguments, curators_eyes=True) == code

    def release():
        assert world.command("--json", "release", "--yes", *force) == 0

    assert world.command("init") == 0
    read("--undo", first, code=2)
    read(first)
    release()
    release()
    for file in (first, "copy.csv", "own.csv", "vans-own.csv"):
        read("--dry-run", file)
        if closely:
            asked()
        read(file)
        asked()
    for file in ("own.csv", "vans-own.csv", "copy.csv", first):
        read("--undo", file)
        asked()
    read("--undo", first, code=2)
    read(first, second)
    release()
    assert world.command("--json", "plan", "--save", "spring") == 0
    for plates in (VICTIM, f"{VICTIM}\nNOBODY-1"):
        assert world.command("forget", "--yes", curators_eyes=True, given=plates) == 0
        asked()
        world.command("release", "--yes", "--plan", "spring")
    release()
    read(second)
    release()
    # the story prints these as JSON too
    told = world.both if closely else world.command
    told("verify", "r0001")
    for number in range(2, 5):
        world.command("verify", f"r000{number}")
    assert told("releases") == 0
    assert told("doctor") == 0
    world.command("status", curators_eyes=not force)
    assert world.command("withdraw", "--yes", "r0002") == 0
    world.command("ingest", "--undo", second, curators_eyes=True)
    asked()
    # a question is priced by the same accounts
    world.command("--json", "sql", f"EXPLAIN {BY_HOUR}")
    world.collect()
    return world


def acts_of_a_vehicle(world, closely=False):
    """Of one whose plate one store knows: the copy has the bytes of the day in the other store only."""
    return acts(world, without(world.rows["2026-03-02"]), closely=closely)


QUESTION = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 4, force = TRUE) h3(6) AS cell, COUNT(*), "
    "AVG(speed) AS mean, STDDEV(speed) AS sd, DP_INTERVAL_LOW(mean) FROM fixes WHERE area = 'north' "
    "GROUP BY cell"
)


BY_HOUR = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, force = TRUE) date, hour, "
    "COUNT(DISTINCT vehicle) FROM fixes WHERE hour BETWEEN 5 AND 8 GROUP BY date, hour "
    "HAVING COUNT(DISTINCT vehicle) > 0"
)


ONE_DAY = re.compile('from = "[0-9-]+", to = "[0-9-]+"')


def compare_releases(world):
    """What changed from the first release to the second, as every kind of file."""
    assert world.both("changes", "r0001", "r0002") == 0
    for ending in CHANGE_FORMATS:
        assert world.command("changes", "r0001", "r0002", "--output", f"changes.{ending}") == 0


def pool_days(world, config, *releases):
    """Publish a map of every day, and pool these releases, as every kind of file."""
    for day in world.rows:
        (world.folder / "day.toml").write_text(ONE_DAY.sub(f'from = "{day}", to = "{day}"', config))
        one_day = ["--config", "day.toml", "release", "--yes", "--force", "--epsilon", "1"]
        assert world.command(*one_day) == 0
    assert world.command("--json", "pool", *releases, "--output", "pooled.json") == 0
    for ending in CHANGE_FORMATS[1:]:
        assert world.command("pool", *releases, "--output", f"pooled.{ending}") == 0


def story(world):
    """Everything that a city and its analysts may do; most of it leaves something."""
    assert world.command("init") == 0
    assert world.command("ingest", "2026-03-02.csv", curators_eyes=True) == 0
    assert world.command("--json", "ingest", "2026-03-03.csv", curators_eyes=True) == 0
    world.both("plan")
    for asked in (
        ["--json", "plan", "--every-accounting", "60", "--chart", "plan.svg"],
        ["plan", "--epsilon", "0.05"],
        ["plan", "--max-half-width", "6 m/s"],
        ["--json", "compare"],
    ):
        world.command(*asked)
    assert world.command("plan", "--save", "spring") == 0
    assert world.command("release", "--yes", "--epsilon", "0.01") == 5
    assert world.command("release", "--yes", "--force") == 0
    assert world.command("--json", "release", "--yes", "--plan", "spring", "--force", "--again") == 0
    assert world.both("sql", "--as", "newsroom", f"EXPLAIN {QUESTION}") == 0
    assert world.command("sql", "--as", "newsroom", QUESTION) == 0
    assert world.command("--json", "sql", "--as", "newsroom", QUESTION) == 0
    assert world.command("sql", "--as", "newsroom", QUESTION.replace("epsilon = 4", "epsilon = 6")) == 3
    assert world.command("sql", "--as", "newsroom", QUESTION.replace("speed", "plate")) == 2
    assert (
        world.both("sql", "SELECT hex_id, speed_mean_ms, speed_mean_ms_low FROM latest_cells ORDER BY 1") == 0
    )
    assert world.command("stream", "--replay", "0", "2026-03-03.csv") == 0
    assert world.command("release", "--yes", "--epsilon", "29", "--force") == 3
    assert world.command("report", "r0002", "report.html", "--against", "r0001") == 0
    compare_releases(world)
    for number, format in enumerate(FORMATS):
        assert world.command("export", "r0001", f"out{number}.{format}", "--to", format) == 0
    assert world.command("site", "site", "--answers") == 0
    pool_days(world, CONFIG, "r0004", "r0005")
    world.verify("r0001", "r0003", "s0001")
    for asked in ("status", "ledger", "releases"):
        assert world.both(asked) == 0
    assert world.command("--json", "doctor") == 0
    world.collect()
    assert world.command("withdraw", "--yes", "r0001") == 0
    assert world.both("releases") == 0
    world.collect()
    return world


def short_story(world):
    """What is enough to see a leak."""
    for arguments in (["init"], ["ingest", "2026-03-02.csv"], ["release", "--yes", "--force"]):
        assert world.command(*arguments, curators_eyes=True) == 0
    world.collect()
    return world


@pytest.fixture(scope="module")
def told_before():
    """The first world of ``short_hidden_story``, whose neighbours are many, and the folder of all worlds."""
    return {}


@pytest.fixture
def two_worlds(tmp_path_factory, monkeypatch, few_runs, two_cities, shared_workers, told_before):
    """``two_worlds(story, neighbour)``: the same story told of two days' rows and of their neighbour's."""
    folder = told_before.setdefault("folder", tmp_path_factory.mktemp("worlds") / "city")
    for module in list(modules_with_clocks()):
        monkeypatch.setattr(module, "datetime", Clock)
    # GDAL writes it into GeoPackages
    monkeypatch.setenv("OGR_CURRENT_DATE", "2026-03-05T12:00:00Z")

    def tell(
        story: Callable[[World], World], neighbour: Callable[[list], list], config: str = CONFIG
    ) -> list[World]:
        script, *worlds = told_before.get((story, config), (Script(),))
        for turn in range(len(worlds), 2):
            rows = {day: (neighbour if turn else list)(feed(day)) for day in ("2026-03-02", "2026-03-03")}
            try:
                with monkeypatch.context() as patch:
                    world = World(folder, rows, script.again() if turn else script, patch, config)
                    worlds.append(story(world))
            finally:
                shutil.rmtree(folder)
            if story is short_hidden_story and not turn:
                told_before[story, config] = script, *worlds
        return worlds

    return tell


def hidden_story(world, closely=False):
    """What a city may do where nothing about a vehicle is public, and what it is refused.

    Reports and exports of maps are made of what is published, whatever the relation: ``story`` makes them.
    ``closely``: those of two maps are made here too.
    """
    assert world.command("init") == 0
    assert world.command("ingest", "2026-03-02.csv", curators_eyes=True) == 0
    assert world.command("--json", "ingest", "2026-03-03.csv", curators_eyes=True) == 0
    assert world.both("plan") == 0
    assert world.both("plan", "--epsilon", "0.05") == 0
    assert world.command("plan", "--save", "spring") == 0
    assert world.command("release", "--yes") == 0
    assert world.command("--json", "release", "--yes", "--plan", "spring", "--again") == 0
    assert world.both("compare") == 0
    for refused in (
        ["plan", "--max-half-width", "6 m/s"],
        ["sql", QUESTION.replace("AVG(", "VEHICLE_AVG(")],
        ["stream", "--replay", "0", "2026-03-03.csv"],
    ):
        assert world.both(*refused) == 2
    for question in (QUESTION, BY_HOUR):
        assert world.both("sql", f"EXPLAIN {question}") == 0
        assert world.both("sql", question) == 0
    assert world.command("release", "--yes", "--epsilon", "29", "--force") == 3
    assert (
        world.both("sql", "SELECT hex_id, speed_mean_ms, speed_mean_ms_low FROM latest_cells ORDER BY 1") == 0
    )
    if closely:
        compare_releases(world)
        pool_days(world, HIDDEN, "r0005", "r0006")
    # r0002 is made as r0001 is
    world.verify("r0001", "r0003", "r0004")
    assert world.both("verify", "--public", "r0001") == 0
    for release in ("r0003", "r0004"):
        assert world.command("verify", "--public", release) == 0
    for asked in ("ledger", "releases"):
        assert world.both(asked) == 0
    assert world.command("doctor") == 0
    # how many records and vehicles there are is for the curator's eyes
    assert world.command("status", curators_eyes=True) == 0
    world.collect()
    assert world.command("withdraw", "--yes", "r0001") == 0
    assert world.both("releases") == 0
    world.collect()
    return world


def short_hidden_story(world):
    """What publishes one map."""
    for arguments in (["init"], ["ingest", "2026-03-02.csv", "2026-03-03.csv"]):
        assert world.command(*arguments, curators_eyes=True) == 0
    assert world.command("--json", "plan") == 0
    assert world.command("release", "--yes") == 0
    assert world.command("verify", "r0001") == 0
    assert world.command("--json", "sql", BY_HOUR) == 0
    world.collect()
    return world


def with_vehicle(kind):
    """A function that adds the rows of one vehicle, and so makes the neighbour of what was there."""
    rng = np.random.default_rng(kind if isinstance(kind, int) else 0)
    start = np.datetime64("2026-03-02T07:00:00")

    def at(second, north, east, speed, plate="X-9999"):
        instant = f"{start + np.timedelta64(int(second), 's')}Z"
        return (plate, instant, f"{north:.7f}", f"{east:.7f}", str(speed))

    area = [(48.1 + 0.2 * i / 19, 16.2 + 0.4 * j / 19) for i in range(20) for j in range(20)]
    if kind in ("very many records", "a million records"):
        many = 10**6 if kind == "a million records" else 5_000
        own = [at(s * 86_000 / many, 48.2, 16.3, 20) for s in range(many)]
    elif kind == "collides":
        # another spelling of a vehicle that is there: one vehicle, with these records more
        own = [at(30 * s, 48.11, 16.59, 15, " w 0003 ") for s in range(300)]
    elif kind == "everywhere":
        own = [at(60 * s, *place, s % 25) for s, place in enumerate(area)]
    elif kind == "alone":
        own = [at(s, 48.11, 16.59, 400) for s in range(30)]
    elif kind == "malformed":
        own = [
            ("X-9999", "yesterday", "48.2", "not a number", ""),
            ("X-9999", "too", "short"),
            ("X-9999",) * 9,
        ]
    elif kind == "far away":
        own = [at(s, 10.0, 10.0, 5) for s in range(9)]
    elif kind == "all of these":
        of_each = (with_vehicle(each)([]) for each in ("everywhere", "alone", "malformed", "far away", 1))
        own = [row for rows in of_each for row in rows]
    else:
        size = int(rng.integers(1, 60))
        seconds = np.cumsum(rng.integers(1, 900, size))
        speeds = rng.choice([0, 3.5, 19.99, 400, -3, ""], size)
        north, east = rng.uniform(48.05, 48.35, size), rng.uniform(16.1, 16.7, size)
        own = [at(*each) for each in zip(seconds, north, east, speeds, strict=True)]
    return lambda rows: [*rows, *own]


@pytest.mark.parametrize(
    "kind",
    [
        "very many records",
        "collides",
        "all of these",
        *(pytest.param(k, marks=pytest.mark.prove) for k in ("everywhere", "alone", "malformed", "far away")),
    ],
)
def test_no_vehicle_changes_a_byte_by_being_there(two_worlds, kind):
    one, other = two_worlds(short_hidden_story, with_vehicle(kind), HIDDEN)
    assert differing(one, other) == []
    assert len(one.left) > 20


@pytest.mark.prove(cheap="test_no_vehicle_changes_a_byte_by_being_there")
def test_a_million_records_change_no_byte(two_worlds):
    one, other = two_worlds(short_hidden_story, with_vehicle("a million records"), HIDDEN)
    assert differing(one, other) == []


@pytest.mark.prove(cheap="test_no_vehicle_changes_a_byte_by_being_there")
@pytest.mark.parametrize("first", range(1, 201, 10))
def test_none_of_two_hundred_vehicles_changes_a_byte_by_being_there(two_worlds, first):
    for seed in range(first, first + 10):
        one, other = two_worlds(short_hidden_story, with_vehicle(seed), HIDDEN)
        assert differing(one, other) == []


@pytest.mark.parametrize("kind", ["everywhere", pytest.param("malformed", marks=pytest.mark.prove)])
def test_the_only_vehicle_changes_no_byte_either(two_worlds, kind):
    """Of an empty city, and of one in which one vehicle drives, or sends nothing that can be read."""
    rows = with_vehicle(kind)([])

    def nobody_then_one(world):
        world.write("2026-03-02.csv", rows if nobody_then_one.told else [])
        world.write("2026-03-03.csv", [])
        nobody_then_one.told = True
        return short_hidden_story(world)

    nobody_then_one.told = False
    one, other = two_worlds(nobody_then_one, list, HIDDEN)
    assert differing(one, other) == []


VANS = """[[source]]
name = "vans"
format = "csv"
files = ["vans-*.csv"]
speed_unit = "km/h"
columns = { vehicle = "bus", time = "at", latitude = "lat", longitude = "lng", speed = "v" }

"""


CLOSELY = pytest.mark.parametrize("closely", [False, pytest.param(True, marks=pytest.mark.prove)])


@CLOSELY
def test_no_act_tells_who_was_there_by_names_prices_refusals_or_the_ledger(two_worlds, closely):
    config = HIDDEN.replace("[[source]]", VANS + "[[source]]")
    one, other = two_worlds(partial(acts_of_a_vehicle, closely=closely), without, config)
    assert differing(one, other) == []
    assert len(one.left) > (150 if closely else 100)
    assert one.hidden != other.hidden


@CLOSELY
def test_no_act_tells_how_fast_a_vehicle_was_by_names_prices_refusals_or_the_ledger(two_worlds, closely):
    config = CONFIG.replace("[[source]]", VANS + "[[source]]")
    one, other = two_worlds(
        lambda world: acts(world, feed("2026-03-02"), force=["--force"], closely=closely),
        other_speeds,
        config,
    )
    assert differing(one, other) == []
    assert len(one.left) > (150 if closely else 100)


@CLOSELY
def test_every_byte_that_leaves_follows_from_noise_where_nothing_is_public(two_worlds, closely):
    one, other = two_worlds(partial(hidden_story, closely=closely), without, HIDDEN)
    assert differing(one, other) == []
    assert len(one.left) > (130 if closely else 80)
    assert one.hidden != other.hidden


def test_every_byte_that_leaves_follows_from_noise(two_worlds):
    one, other = two_worlds(story, other_speeds)
    assert differing(one, other) == []
    assert len(one.left) > 130
    # the vehicle decides alone whether its city's unit seems to fit: only the curator is told
    assert one.hidden != other.hidden


def _named_by_its_history(patch):
    """A hash of the files as the name of the data."""
    sound = vault_fixes.data_version

    def leaking(vault):
        version = sound(vault)
        return vault_fixes.DataVersion(
            version.ingest_id, vault_fixes.stated_history(vault, version.ingest_id)
        )

    patch.setattr(vault_fixes, "data_version", leaking)


def _history_in_the_ledger(patch):
    """A hash of the files in what the published head hashes."""
    sound = vault_ledger.add_entry
    patch.setattr(
        vault_ledger,
        "add_entry",
        lambda vault, facts: sound(vault, {**facts, "files": vault_fixes.stated_history(vault, 1)}),
    )


def _noise_that_follows_nothing(patch):
    """Noise that does not make up for other speeds."""
    patch.setattr(Script, "again", lambda script: Script())


@pytest.mark.parametrize(
    ("leak", "seen"),
    [
        (_named_by_its_history, "city.store/releases/r0001/manifest.json"),
        (_history_in_the_ledger, "city.store.key"),
        (_noise_that_follows_nothing, "city.store/releases/r0001/map.geojson"),
    ],
)
def test_a_leak_is_seen(two_worlds, monkeypatch, leak, seen):
    leak(monkeypatch)
    one, other = two_worlds(short_story, other_speeds)
    assert any(name.startswith(seen) for name in differing(one, other))


def _named_by_its_bytes(patch):
    """The same bytes again leave the data its name."""
    sound = vault_fixes.data_version

    def leaking(vault):
        version = sound(vault)
        found = vault.connection.execute(
            "SELECT data_version FROM ingests QUALIFY row_number() OVER (PARTITION BY file_digest "
            "ORDER BY ingest_id) = 1 ORDER BY ingest_id DESC LIMIT 1"
        ).fetchall()
        return vault_fixes.DataVersion(version.ingest_id, found[0][0] if found else version.name)

    patch.setattr(vault_fixes, "data_version", leaking)


def _forgotten_if_known(patch, *, renamed=True):
    """Data is renamed, or the ledger told of it, only where a vehicle was known."""
    sound, rename, add = intake.rewrite_without_vehicles, vault_fixes.rename_versions, vault_ledger.add_entry

    def leaking(store, without, ready):
        if renamed:
            patch.setattr(vault_fixes, "rename_versions", rename if without else lambda vault: None)
        else:
            told = {"vehicles": len(without)}
            patch.setattr(vault_ledger, "add_entry", lambda vault, facts: add(vault, facts | told))
        return sound(store, without, ready)

    patch.setattr(intake, "rewrite_without_vehicles", leaking)


def _refused_for_its_rows(patch):
    """A file is refused for having no row."""
    sound = ingest_read.Reading
    patch.setattr(
        ingest_read,
        "Reading",
        lambda *given, refuse_by_rows, **options: sound(*given, refuse_by_rows=True, **options),
    )


def _nothing_to_take_back(patch):
    """Where the fourth file brought nothing, it cannot be taken back."""
    sound = vault_fixes.undo

    def leaking(vault, ingest_id, at):
        brought = sound(vault, ingest_id, at)
        if ingest_id == 4 and not brought:
            raise UsageError("nothing to take back")
        return brought

    patch.setattr(vault_fixes, "undo", leaking)


@pytest.mark.prove(cheap="test_a_leak_is_seen")
@pytest.mark.parametrize(
    "leak",
    [
        _named_by_its_bytes,
        _forgotten_if_known,
        partial(_forgotten_if_known, renamed=False),
        _refused_for_its_rows,
        _nothing_to_take_back,
    ],
)
def test_an_act_that_tells_is_seen(two_worlds, monkeypatch, leak):
    leak(monkeypatch)
    told = []

    def acting(world):
        told.append(world)
        return acts_of_a_vehicle(world)

    config = HIDDEN.replace("[[source]]", VANS + "[[source]]")
    with pytest.raises(AssertionError):  # noqa: PT012  # what differs, or what the other store refuses
        one, other = two_worlds(acting, without, config)
        assert differing(one, other) == []
    assert len(told) == 2


def _exact(asking):
    """One asking of every release is answered without noise: the fleet, or the weights."""

    def leak(patch):
        sound = PrivacyMeter.measure

        def leaking(measure, step, values):
            drawn, number = sound(measure, step, values), getattr(measure, "number", 0)
            measure.number = number + 1
            return step.exact(values) if number == asking else drawn

        patch.setattr(PrivacyMeter, "measure", leaking)

    return leak


def _hexagons_that_were_visited(patch):
    """No row where nobody was."""

    def leaking(curator, grid, bound, version):
        there = curator._recorded(grid, bound, version).counts
        patch.setattr(specification, "declared_bins", lambda declared: (there.cell, there.slot))
        return Contributions.for_declared_grid(there.cell, there.slot, bound)

    patch.setattr(Curator, "counted", leaking)


@pytest.mark.prove(cheap="test_a_leak_is_seen")
@pytest.mark.parametrize(
    "leak",
    [
        pytest.param(_exact(0), id="scale from the data's fleet"),
        pytest.param(_exact(1), id="exact count in the ratio"),
        pytest.param(_hexagons_that_were_visited, id="hexagon list from the data"),
    ],
)
def test_a_leak_of_presence_is_seen(two_worlds, monkeypatch, leak):
    leak(monkeypatch)
    told = []

    def shorter(world):
        told.append(short_story(world))
        return world

    with pytest.raises(AssertionError):  # noqa: PT012  # bytes that differ, or the second map's hexagons
        one, other = two_worlds(shorter, with_vehicle("alone"), HIDDEN)
        assert differing(one, other) == []
    # the leaking city itself is a city like any other
    assert told
    assert told[0].left["city.store/releases/r0001/manifest.json"]
