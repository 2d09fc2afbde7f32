"""Kills a stream at random instants and says what became of it. Run as a program.

    python stream_driver.py FOLDER FILES

It reads one task a line, and prints a JSON object for each.

    random COUNT SEED         COUNT deaths in all, each a moment after a boundary
    boundaries N...           die the Nth time that any named boundary is reached

Streams of a small city, which come in so many files, are killed again and again until they have come to their
end. Half of them draw noise that depends on the step alone, through a door that only this program opens: what
they published is compared with a stream that nobody killed. The others draw real noise: what was committed
before a death is compared with what is committed afterwards.
"""

import hashlib
import json
import random
import shutil
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import duckdb
import small_city
from children import die_in, forked, import_everything, outcome_of, wait_for, was_killed

from trafficdp.noise.source import SimulatedNoise
from trafficdp.release import streaming
from trafficdp.release.feeds import digest_of
from trafficdp.release.streaming import follow_folder

STREAM = """
[stream]
epsilon = 8
publish_every = @every
lateness = 3
records_per_vehicle = 9
records_per_step = 2

[[source]]"""


def prepare(folder, files):
    """Make a city, and the files of its first day in which some records come twice, late or out of order.

    Some files make a publication.
    """
    city = small_city.City(folder / "city", budget=10, last="2026-03-03")
    stream = STREAM.lstrip().replace("@every", str(70 // files))
    text = city.config.read_text(encoding="utf-8")
    city.config.write_text(text.replace("[[source]]", stream, 1), encoding="utf-8")
    city.open()
    header, *rows = city.days[1].read_text(encoding="utf-8").splitlines()
    rows.sort(key=lambda row: row.split(",")[1])
    mixed = random.Random(5)
    order = sorted(range(len(rows)), key=lambda place: place + mixed.uniform(0, 12))
    rows = [rows[place] for place in order]
    rows += [rows[place] for place in (3, 30, 90)]
    size = -(-len(rows) // files)
    arriving = city.folder / "arriving"
    arriving.mkdir()
    for number in range(files):
        part = rows[number * size : (number + 1) * size] + rows[number * size : number * size + 1]
        path = arriving / f"f{number:02d}.csv"
        path.write_text("\n".join([header, *part]) + "\n", encoding="utf-8")
    return city.folder


def run(city, *, known_noise, by_folder):
    """Take all files and end the stream; what was taken before is passed over."""
    if known_noise:
        streaming.LiveStream._noise = lambda self: SimulatedNoise(self._stream.closed)
    workspace = city.open()
    live = workspace.live()
    try:
        live.begin()
    except streaming.UsageError as error:
        if "is over" in str(error):
            return
        raise
    if by_folder:
        follow_folder(
            live,
            city.folder / "arriving",
            once=True,
            stop=lambda: False,
            tell=print_nothing,
            warn=print_nothing,
        )
    else:
        for path in sorted((city.folder / "arriving").iterdir()):
            digest = digest_of(path, live.key)
            live.ingest([live.read(path, digest)], live=False)
    live.end()


def print_nothing(_):
    pass


def committed(city):
    """What the vault holds, read from a copy: looking must not be what recovers its log."""
    copy = city.folder / "copy"
    copy.mkdir()
    try:
        for name in ("vault.duckdb", "vault.duckdb.wal"):
            if (city.store / name).exists():
                shutil.copy(city.store / name, copy)
        with duckdb.connect(str(copy / "vault.duckdb")) as connection:

            def ask(sql):
                return connection.execute(sql).fetchall()

            tables = {name for (name,) in ask("SELECT table_name FROM duckdb_tables()")}
            if "streams" not in tables:
                return {"publications": [], "charges": [], "counts": 0, "streams": 0, "rows": 0, "values": ""}
            ledger = [json.loads(entry) for (entry,) in ask("SELECT entry FROM ledger ORDER BY sequence")]
            counts = [facts["counts_sha256"] for facts in ledger if facts["kind"] == "stream_publication"]
            publications = ask("SELECT number, step, bins FROM stream_publications ORDER BY number")
            return {
                "publications": [
                    [number, step, hashlib.sha256(bins).hexdigest(), pinned]
                    for (number, step, bins), pinned in zip(publications, counts, strict=True)
                ],
                "charges": ask(
                    "SELECT vehicle_id, sum(loss_pico)::BIGINT FROM vehicle_charges GROUP BY ALL ORDER BY 1"
                ),
                "counts": ask("SELECT count(*), sum(records)::BIGINT FROM stream_counts")[0],
                "streams": ask("SELECT count(*) FROM streams")[0][0],
                "rows": ask("SELECT sum(rows_taken)::BIGINT FROM stream_files")[0][0],
                "kinds": dict(
                    Counter(json.loads(entry)["kind"] for (entry,) in ask("SELECT entry FROM ledger"))
                ),
            }
    finally:
        shutil.rmtree(copy)


def shown(city):
    """The publication that a reader of live.geojson sees, 0 for none; it must always be whole."""
    path = city.store / "releases" / "s0001" / "live.geojson"
    if not path.exists():
        return 0
    return json.loads(path.read_text(encoding="utf-8"))["trafficdp"]["stream"]["publication"]


def autopsy(city):
    """Raise AssertionError for what is not as promised once a stream is at its end."""
    workspace = city.open()
    failed = [check for check in workspace.verify("s0001") if not check.passed]
    assert not failed, failed
    after = committed(city)
    assert after["streams"] == 1
    assert {loss for _, loss in after["charges"]} == {8 * 10**12}
    assert after["kinds"] == {
        "promise": 1,
        "stream": 1,
        "stream_end": 1,
        "stream_publication": len(after["publications"]),
    }, after["kinds"]
    cells = city.sql("SELECT max(publication), count(DISTINCT publication) FROM cells", database="released")
    assert cells == [(len(after["publications"]),) * 2], cells
    assert shown(city) == len(after["publications"])
    top = {path.name for path in city.store.iterdir()}
    assert top <= {".lock", "vault.duckdb", "released.duckdb", "releases"}, top
    names = {path.name for path in (city.store / "releases" / "s0001").iterdir()}
    assert names == {
        *("cells.parquet", "live.geojson", "map.html", "mechanism.parquet"),
        *("datapackage.json", "dataset.jsonld", "manifest.json"),
    }, names


NEVER = (None, -1, 0.0)


def at_random(generator, files, seconds):
    """Return deaths without end: within ``seconds`` of some boundary, or (the 0th) of the start.

    A life goes on where the last one ended: short ones reach every stage of a stream, on any machine.
    """
    while True:
        yield None, generator.randrange(files), generator.uniform(0.0, seconds)


def lives(template, number, deaths_to_die, expected, most, *, known_noise, by_folder=False):
    """Kill one stream until it ends (or ``most`` times); return the deaths, and what was wrong.

    Of ``deaths_to_die`` each is a boundary (None: any), how often it is reached, and how long after it.
    """
    folder = template.parent / f"trial{number}"
    shutil.copytree(template, folder)
    city = small_city.at(folder)
    deaths, problems = [], []
    while True:
        before, seen = committed(city), shown(city)
        if seen > len(before["publications"]):
            problems.append("a reader saw what was not committed")
        death = next(deaths_to_die) if len(deaths) < most else NEVER
        child = forked(partial(run_or_die, city, death, known_noise=known_noise, by_folder=by_folder))
        status = wait_for(child)
        after = committed(city)
        if after["publications"][: len(before["publications"])] != before["publications"]:
            problems.append("a committed publication changed")
        if was_killed(status):
            deaths.append([len(after["publications"]), after["rows"]])
            continue
        if status != 0:
            problems.append(f"a restart failed with {status}")
        break
    verdict = outcome_of(lambda: autopsy(city))
    if verdict != 0:
        problems.append("the autopsy failed")
    final = committed(city)
    if known_noise and final["publications"] != expected["publications"]:
        problems.append("other values than of the stream that nobody killed")
    for name in ("charges", "counts", "rows"):
        if final[name] != expected[name]:
            problems.append(f"other {name} than of the stream that nobody killed")
    shutil.rmtree(folder)
    return deaths, problems


def run_or_die(city, death, **options):
    name, left, delay = death

    def reached(here):
        nonlocal left
        left -= name in (None, here)
        if name in (None, here) and left == 0:
            die_in(delay)

    if left == 0:
        die_in(delay)
    streaming.failpoint = reached
    run(city, **options)


def findings_of(template, files, expected, whole, task, *numbers):
    deaths, problems, streams = [], [], 0
    if task == "boundaries":
        cases = [
            (name, count)
            for name in streaming.BOUNDARIES
            for count in numbers
            if name != "charged" or count == 1
        ]
        for case in cases:
            streams += 1
            died, wrong = lives(template, streams, iter([(*case, 0.0)]), expected, 1, known_noise=True)
            deaths += died
            problems += [f"{case}: {each}" for each in wrong]
    else:
        count, generator = numbers[0], random.Random(numbers[1])
        while len(deaths) < count:
            streams += 1
            died, wrong = lives(
                template,
                streams,
                at_random(generator, files, whole / files),
                expected,
                count - len(deaths),
                known_noise=streams % 2 == 1,
                by_folder=generator.random() < 0.5,
            )
            deaths += died
            problems += wrong
    stages = Counter("before the first" if n == 0 else f"after {n} publications" for n, _ in deaths)
    return {
        "deaths": len(deaths),
        "streams": streams,
        "problems": problems,
        "publications": len(expected["publications"]),
        "stages": stages,
    }


def main(folder, files):
    import_everything()
    small_city.wait_for_no_disk()
    folder, files = Path(folder), int(files)
    template = prepare(folder, files)
    whole_folder = folder / "whole"
    shutil.copytree(template, whole_folder)
    began = time.monotonic()
    if outcome_of(lambda: run(small_city.at(whole_folder), known_noise=True, by_folder=False)) != 0:
        raise SystemExit("the stream does not run")
    whole = time.monotonic() - began
    city = small_city.at(whole_folder)
    expected = committed(city)
    if outcome_of(lambda: autopsy(city)) != 0:
        raise SystemExit("the stream that nobody killed is not sound")
    for line in sys.stdin:
        task, *numbers = line.split()
        print(json.dumps(findings_of(template, files, expected, whole, task, *map(int, numbers))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
