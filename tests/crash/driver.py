"""Kills or starves commands and says what the next command makes of what they left. Run as a program.

    python driver.py FOLDER

It reads one task a line, and prints for each a JSON list: for every death, what died and what was found wrong
afterwards.

    boundaries [all]          die at every named boundary of release, withdrawal, change of budget; release
                              once more after each death of a release, or after the first of what each leaves
    renames NUMBER...         die before every rename of the same, but these of the release
    random COUNT SEED         die COUNT times between random boundaries of a sequence
    limits BYTES...           no file may grow beyond one limit after another
    forgetting SECONDS...     die at every boundary of forgetting a vehicle, and so long after its start

The parent has imported everything and has released once; children are forked, so that a death costs no
start-up.
"""

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import small_city
from children import die_in, forked, import_everything, outcome_of, wait_for, was_killed

import trafficdp
from trafficdp.cli.main import run as command_line
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.release import curator, intake, publication
from trafficdp.store import vault_ledger
from trafficdp.store.store_files import Head
from trafficdp.store.vault import Vault, problems

BUDGET_PICO = 40 * 10**12


def prepare(folder):
    """Make the city that every trial starts from: the first day, and r0001 published."""
    small_city.try_maps_once()
    city = small_city.City(folder / "template", budget=40)
    workspace = city.open()
    workspace.ingest([city.days[1]])
    workspace.release(again=True, force=True)
    return city.folder


def ingest(workspace, city):
    workspace.ingest([city.days[2]])


def release(workspace, city):
    workspace.release(again=True, force=True)


def withdraw(workspace, city):
    workspace.withdraw("r0001")


def raise_budget(workspace, city):
    small_city.write_config(city.folder, budget=50)
    trafficdp.open(city.config).raise_budget("dies on the way")


def everything(workspace, city):
    """The whole sequence whose random instants are tried."""
    workspace.ingest([city.days[2]])
    workspace.release(again=True, force=True)
    workspace.withdraw("r0001")
    workspace.release(again=True, force=True)


def at_boundary(name, command):
    """Return a child's work: run ``command`` and die when the boundary ``name`` is reached."""

    def reached(boundary):
        if boundary == name:
            die_in(0)

    def work(city):
        curator.failpoint = reached
        command(city.open(), city)

    return work


def at_rename(number, command):
    """Return a child's work: die just before its rename ``number``; renames are counted from 1."""

    def work(city):
        workspace = city.open()
        count, real = 0, os.replace

        def counted(source, target, **options):
            nonlocal count
            count += 1
            if count == number:
                die_in(0)
            real(source, target, **options)

        os.replace = counted
        Path.replace = lambda self, target: counted(self, target)
        command(workspace, city)

    return work


def within(number, seconds):
    """Return a child's work: run the sequence and die ``seconds`` after its boundary ``number``.

    Number 0 is the start. A sequence that is over sooner waits for its death: every child dies.
    """

    def work(city):
        left = number

        def reached(boundary):
            nonlocal left
            left -= 1
            if left == 0:
                die_in(seconds)

        if number == 0:
            die_in(seconds)
        curator.failpoint = reached
        everything(city.open(), city)
        signal.pause()

    return work


def files_of(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file()
    }


def visible(city):
    """Return {release: its files} of all folders that a reader would take for a release."""
    folder = city.store / "releases"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {each.name: files_of(each) for each in found if not each.name.startswith(".")}


def committed(city):
    """Return {release: digest of its committed values}, charged releases and numbers of ledger entries."""
    with tempfile.TemporaryDirectory() as folder:
        # a copy: looking must not be what recovers the log
        for name in ("vault.duckdb", "vault.duckdb.wal"):
            if (city.store / name).exists():
                shutil.copy(city.store / name, folder)
        tables = small_city.tables_of(Path(folder) / "vault.duckdb")
    values = {
        name: hashlib.sha256(repr(values_among(tables["release_pieces"], name)).encode()).hexdigest()
        for name, _, drawn, _, _ in tables["releases"]
        if drawn == "true"
    }
    state = {
        name: "withdrawn" if withdrawn == "true" else "published" if published == "true" else "charged"
        for name, _, _, published, withdrawn in tables["releases"]
    }
    return values, state, len(tables["ledger"]), len(tables["ingests"])


def values_among(pieces, name):
    """Return the rows that hold the noisy values of a release; none of them is missing."""
    found = [row for row in pieces if row[0] == name and row[1] != "allocation"]
    assert {row[1] for row in found} == {"facts", "bins", "measured"}
    return found


def autopsy(city, seen_before, values_before, ledger_before, *, lives_on=False):
    """Recover, and raise AssertionError for everything that is not as promised."""
    workspace = city.open()
    summaries = workspace.releases()
    states = {each.id: each.status for each in summaries}
    assert "unfinished" not in states.values(), states

    entries = small_city.ledger_entries(city)
    assert entries[0]["kind"] == "promise"
    kinds = Counter((entry["kind"], entry.get("release")) for entry in entries if entry["kind"] != "promise")
    assert all(times == 1 for times in kinds.values()), kinds
    assert {name for kind, name in kinds if kind == "charge"} == set(states), kinds
    assert {name for kind, name in kinds if kind == "publication"} == set(states), kinds
    assert {name for kind, name in kinds if kind == "withdrawal"} == {
        name for name, status in states.items() if status == "withdrawn"
    }
    assert len(entries) >= ledger_before

    charges = small_city.charges_by_plate_order(city)
    assert all(sum(each.values()) <= BUDGET_PICO for each in charges.values())
    assert len(set().union(*charges.values())) == len(states)

    seen = visible(city)
    assert set(seen) == {name for name, status in states.items() if status == "published"}, seen.keys()
    for name, files in seen.items():
        assert set(files) == {
            "map.geojson",
            "cells.csv",
            "cells.parquet",
            "map.html",
            "mechanism.parquet",
            "datapackage.json",
            "dataset.jsonld",
            "manifest.json",
        }
        assert seen_before.get(name, files) == files, f"{name} has other files than before"
    values_after = committed(city)[0]
    for name, digest in values_before.items():
        assert values_after[name] == digest, f"{name} was drawn again"

    # older ones have the files and values that they had
    newest = [*seen][-1:]
    with Vault.open(city.store) as opened:
        door = curator.Curator(city.store, opened, Head(city.key, opened.store_id))
        door.check_not_behind()
        rows = vault_ledger.ledger_rows(opened)
        assert door.head.verify(rows) == len(rows)
        assert problems(opened) == []
        for name in newest:
            with tempfile.TemporaryDirectory() as again:
                publication.place_files(Path(again), door.load(name))
                assert files_of(Path(again) / "releases" / name) == seen[name], f"{name} is not reproducible"
    for name in newest:
        failed = [check for check in workspace.verify(name) if not check.passed]
        assert not failed, failed

    rows = dict(city.sql("SELECT release_id, status FROM releases", database="released"))
    assert rows == states, (rows, states)
    cells = {name for (name,) in city.sql("SELECT DISTINCT release_id FROM cells", database="released")}
    assert cells == set(seen), cells

    (ingests, fixes) = city.sql("SELECT (SELECT count(*) FROM ingests), (SELECT count(*) FROM fixes)")[0]
    assert fixes == FIXES[ingests], (ingests, fixes)
    top = {path.name for path in city.store.iterdir()}
    assert top <= {".lock", "vault.duckdb", "released.duckdb", "releases"}, top
    assert set(states) >= {path.name for path in (city.store / "releases").iterdir()}
    beside = {path.name for path in city.folder.iterdir()}
    assert not any(name.endswith((".new", ".partial", ".tmp")) for name in beside), beside

    before = city.dump()
    workspace.releases()
    assert city.dump() == before, "a second recovery changed something"
    if not lives_on:
        return
    # another release is possible, and charged
    workspace.release(again=True, force=True)
    assert len(small_city.ledger_entries(city)) == len(entries) + 2


FIXES = {}


def trial(template, number, name, work, *, lives_on=lambda stage: False):
    """Kill one child, examine what it left, and return the finding; it ``lives_on`` after some stages."""
    folder = template.parent / f"trial{number}"
    shutil.copytree(template, folder)
    city = small_city.at(folder)
    status = outcome_of(lambda: work(city))
    values, states, ledger, ingests = committed(city)
    seen = visible(city)
    newest = max(states)
    in_flight = states[newest] == "charged"
    stage = (
        "finished"
        if status == 0
        else "no charge open"
        if not in_flight
        else "values committed, not published"
        if newest in values
        else "charged, no values"
    )
    verdict = outcome_of(lambda: autopsy(city, seen, values, ledger, lives_on=lives_on(stage)))
    finding = {
        "name": name,
        "killed": was_killed(status),
        "status": status,
        "sound": verdict == 0,
        "ingests": ingests,
        "releases": states,
        "stage": stage,
    }
    shutil.rmtree(folder)
    return finding


def boundaries(template, everywhere):
    findings = []
    for command, names in (
        (release, curator.BOUNDARIES),
        (withdraw, curator.WITHDRAWAL_BOUNDARIES),
        (raise_budget, curator.CHANGE_BOUNDARIES),
    ):
        for name in names:

            def lives_on(stage, command=command):
                met = not everywhere and any(each["stage"] == stage for each in findings)
                return command is release and not met

            work = at_boundary(name, command)
            findings.append(
                trial(template, len(findings), f"{command.__name__}: {name}", work, lives_on=lives_on)
            )
    return findings


def renames(template, passed_over):
    findings = []
    for command in (release, withdraw):
        number, killed = 0, True
        while killed:
            number += 1
            if command is release and number in passed_over:
                continue
            name = f"{command.__name__}: before rename {number}"
            finding = trial(template, len(findings), name, at_rename(number, command))
            killed = finding["killed"]
            findings.append(finding)
    return findings


def at_random(template, count, seed):
    """Die ``count`` times, as often in every gap between two boundaries as in any other."""
    generator = random.Random(seed)
    gaps = _gaps(template)
    findings = []
    for _ in range(count):
        number = generator.randrange(len(gaps))
        seconds = generator.uniform(0.0, gaps[number])
        name = f"{seconds:.4f} s after boundary {number}"
        findings.append(trial(template, len(findings), name, within(number, seconds)))
    return findings


def _gaps(template):
    """Return how long the sequence takes to its first boundary, from each to the next, and to its end."""
    folder = template.parent / "timing"
    shutil.copytree(template, folder)
    city, times = small_city.at(folder), folder / "times.json"

    def work():
        instants = [time.monotonic()]
        curator.failpoint = lambda _: instants.append(time.monotonic())
        everything(city.open(), city)
        instants.append(time.monotonic())
        times.write_text(json.dumps([end - start for start, end in pairwise(instants)]), encoding="utf-8")

    status = outcome_of(work)
    if status != 0:
        raise SystemExit(f"the sequence does not run: {status}")
    gaps = json.loads(times.read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    return gaps


def limited(limit, arguments):
    """Run the command line in a child whose files may not outgrow ``limit``; return code and what it said."""
    reading, writing = os.pipe()

    def work():
        os.dup2(writing, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        os._exit(command_line(arguments))

    child = forked(work)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    return wait_for(child), text


def limits(template, sizes):
    """Let no file grow beyond each of ``sizes``, in bytes."""
    findings = []
    for name, arguments in (
        ("ingest", ("day2.csv",)),
        ("release", ("--again", "--force", "--yes")),
        ("withdraw", ("r0001", "--yes")),
    ):
        for limit in sizes:
            folder = template.parent / "limited"
            shutil.copytree(template, folder)
            city = small_city.at(folder)
            before = city.dump()
            paths = [str(folder / each) if each.endswith(".csv") else each for each in arguments]
            code, said = limited(limit, ["--config", str(city.config), "--quiet", name, *paths])
            left = city.dump()
            values, states, ledger, _ = committed(city)
            verdict = outcome_of(lambda c=city, v=values, n=ledger: autopsy(c, visible(c), v, n))
            findings.append(
                {
                    "name": f"{name} under {limit} bytes",
                    "command": name,
                    "code": code,
                    "lines": said.count("\n"),
                    "says": said.strip().replace(str(folder), ""),
                    "unchanged": left == before,
                    "charged": "r0002" in states,
                    "sound": verdict == 0,
                }
            )
            shutil.rmtree(folder)
    return findings


def forget(workspace, city):
    workspace.forget([small_city.PLATES[2]])


def after(seconds, command):
    """Return a child's work: run ``command`` and die after ``seconds``, at the latest when it is over."""

    def work(city):
        workspace = city.open()
        die_in(seconds)
        command(workspace, city)
        die_in(0)

    return work


def of_vehicle(city):
    """Return what the vault holds of the vehicle: its number if its pseudonym is there, and its fixes.

    And the rows of the cache of contributions, and the entries that say that somebody was forgotten.
    """
    secret = VehicleKey.load(city.key).pseudonyms([small_city.PLATES[2]], "")[0].as_py()
    numbers = city.sql("SELECT vehicle_id FROM vehicles WHERE hmac = ?", [secret])
    ((fixes,),) = city.sql("SELECT count(*) FROM fixes WHERE vehicle_id = ?", [city.number])
    ((cached,),) = city.sql("SELECT count(*) FROM contributions")
    entries = [each for each in small_city.ledger_entries(city) if each["kind"] == "forgetting"]
    return [number for (number,) in numbers], fixes, cached, len(entries)


def forgotten_or_not(city, untouched, *, lives_on):
    """Recover, and raise AssertionError unless the vehicle is there as before or its records are gone.

    Where the city ``lives_on`` another release is made.
    """
    workspace = city.open()
    workspace.releases()
    found = of_vehicle(city)
    # it was charged: its pseudonym stays with its account
    assert found in (untouched, ([city.number], 0, 0, 1)), found
    top = {path.name for path in city.store.iterdir()}
    assert top <= {".lock", "vault.duckdb", "released.duckdb", "releases"}, top
    # the command that was interrupted can be repeated
    workspace.forget([small_city.PLATES[2]])
    assert of_vehicle(city) == ([city.number], 0, 0, found[3] + 1)
    with Vault.open(city.store) as opened:
        door = curator.Curator(city.store, opened, Head(city.key, opened.store_id))
        door.check_not_behind(whole=True)
        rows = vault_ledger.ledger_rows(opened)
        assert door.head.verify(rows) == len(rows)
        assert problems(opened) == []
    if lives_on:
        workspace.release(force=True)
        assert all(check.passed for check in workspace.verify("r0002"))


def forgettings(template, instants):
    """Of deaths before the vehicle is gone the first lives on, and so of those after; of many, all do."""
    deaths = [(name, at_boundary(name, forget)) for name in intake.BOUNDARIES]
    deaths += [(f"before rename {number}", at_rename(number, forget)) for number in (1, 2)]
    deaths += [(f"after {seconds} s", after(seconds, forget)) for seconds in instants]
    findings = []
    for name, work in deaths:
        folder = template.parent / f"trial{len(findings)}"
        shutil.copytree(template, folder)
        city = small_city.at(folder)
        secret = VehicleKey.load(city.key).pseudonyms([small_city.PLATES[2]], "")[0].as_py()
        ((city.number,),) = city.sql("SELECT vehicle_id FROM vehicles WHERE hmac = ?", [secret])
        untouched = of_vehicle(city)
        status = outcome_of(lambda city=city, work=work: work(city))
        left = of_vehicle(city)
        gone = left[3] == 1
        lives_on = len(instants) > 1 or all(each["gone"] != gone for each in findings)
        verdict = outcome_of(
            lambda city=city, before=untouched, on=lives_on: forgotten_or_not(city, before, lives_on=on)
        )
        findings.append({"name": name, "killed": was_killed(status), "gone": gone, "sound": verdict == 0})
        shutil.rmtree(folder)
    return findings


def findings_of(template, task, *told):
    if task == "boundaries":
        return boundaries(template, everywhere=bool(told))
    numbers = [float(each) if "." in each else int(each) for each in told]
    if task == "renames":
        return renames(template, numbers)
    if task == "forgetting":
        return forgettings(template, numbers)
    if task == "limits":
        return limits(template, numbers)
    return at_random(template, *numbers)


def main(folder):
    import_everything()
    small_city.wait_for_no_disk()
    template = prepare(Path(folder))
    city = small_city.at(template)
    for ingests in (1, 2):
        FIXES[ingests] = sum(
            len(city.days[day].read_text().splitlines()) - 1 for day in range(1, ingests + 1)
        )
    for task in sys.stdin:
        # the end of a program that hangs; children do not inherit it
        signal.alarm(1800)
        print(json.dumps(findings_of(template, *task.split())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
