"""A store that grows: what its last day and its last release cost beside the first.

    python tests/benchmarks/bench_store.py [--days D --every E] [--releases N] [--questions N] [--copies N]
        [--ledger N...]

* days: a file a day of a simulated city, ingested and, every so many days, released;
* releases: one map again and again, each charged, of the same records;
* questions: an analyst's priced questions, no two alike, of the same records;
* copies: the same in a store that was filled up with copies of its last release, as if N had been made;
* ledger: a check of the whole ledger of such stores, as `verify` and `doctor` make it.

Processor seconds in one process, after imports and one release of another store that is not counted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from table import keep

import trafficdp
from trafficdp._durable import new_token
from trafficdp.privacy.ledger import append
from trafficdp.release.curator import Curator
from trafficdp.store import vault_ledger, vault_releases
from trafficdp.store.store_files import RELEASED_NAME, Head, attached, registered
from trafficdp.store.vault import Vault

VEHICLES, RESOLUTION, SEED = 300, 6, 1
AT = (1, 10, 100, 1000)
AROUND = 5
"""Releases whose median is told."""
ANALYST = '\n[[analysts]]\nname = "newsroom"\nepsilon_per_vehicle = 50000\n'
QUESTION = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1.{:04}, force = TRUE) hour, AVG(speed) "
QUESTION += "FROM records GROUP BY hour"


def city(folder: Path, days: int) -> tuple[Path, list[Path]]:
    """Write a simulated city with budgets for many releases; return its configuration and its files."""
    made = trafficdp.simulate(folder, vehicles=VEHICLES, days=days, seed=SEED, resolution=RESOLUTION)
    text = made.config.read_text(encoding="utf-8")
    text = text.replace("[privacy]", "[privacy]\naccept_weak_promise = true")
    ceilings = "100000\nepsilon_per_vehicle_a_year = 90000\nepsilon_per_vehicle_a_month = 80000"
    text = text.replace("epsilon_per_vehicle = 20", f"epsilon_per_vehicle = {ceilings}")
    made.config.write_text(text + ANALYST, encoding="utf-8")
    return made.config, list(made.feeds)


def seconds_of(work: Callable[[], object]) -> float:
    """Return the processor seconds that ``work`` takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def warm(folder: Path) -> None:
    """Make one release, so that everything is imported."""
    config, files = city(folder, 1)
    workspace = trafficdp.open(config, store=folder / "store", create=True)
    workspace.ingest(files)
    workspace.release(force=True)


def days_of_a_store(folder: Path, days: int, every: int) -> None:
    """Ingest a day at a time, release now and then, and print and keep what each cost."""
    config, files = city(folder, days)
    store = folder / "store"
    trafficdp.open(config, store=store, create=True)

    def ingest(path: Path) -> None:
        trafficdp.open(config, store=store).ingest([path])

    ingests: list[float] = []
    releases: list[float] = []
    for day, path in enumerate(files[:days]):
        ingests.append(seconds_of(partial(ingest, path)))
        if day % every == 0:
            releases.append(seconds_of(lambda: trafficdp.open(config, store=store).release(force=True)))
            print(f"day {day:>4} ingest {ingests[-1]:.2f} release {releases[-1]:.2f}", flush=True)
    rows = []
    for start in range(0, days, max(1, days // 5)):
        end = min(start + max(1, days // 5), days)
        own = releases[-(-start // every) : -(-end // every)]
        if end - start > 1 and own:
            rows.append(
                [
                    f"{start + 1} to {end}",
                    f"{statistics.median(ingests[start:end]):.2f}",
                    f"{max(ingests[start:end]):.2f}",
                    f"{statistics.median(own):.2f}",
                    f"{max(own):.2f}",
                ]
            )
    keep(
        "Days of one store",
        f"A file of {VEHICLES} vehicles a day, a release every {every} days: seconds a day and a release, "
        "median and largest.",
        ["days", "ingest", "largest", "release", "largest"],
        rows,
    )


def again_and_again(folder: Path, many: int, copies: int, *, questions: bool) -> None:
    """Release the same map, or ask other questions, ``many`` times; print and keep what it costs on the way.

    Then some more, where the store was filled up to ``copies``.
    """
    config, files = city(folder, 3)
    store = folder / "store"
    trafficdp.open(config, store=store, create=True).ingest(files)
    noun, seconds = "question" if questions else "release", [0.0]

    def once() -> None:
        workspace = trafficdp.open(config, store=store)
        if questions:
            workspace.ask(QUESTION.format(len(seconds)), analyst=ANALYST.split('"')[1])
        else:
            workspace.release(force=True, again=True)

    for number in range(1, many + 1):
        seconds.append(seconds_of(once))
        if number in AT or number % 50 == 0:
            print(f"{noun} {number:>6} {statistics.median(seconds[-AROUND:]):.3f}", flush=True)
    found = {at: seconds[at - AROUND + 1 : at + 1] for at in AT if AROUND < at <= many}
    if copies > many:
        fill_up(store, folder / "store.key", copies)
        # sums of the accounts are written again by the first
        for _ in range(AROUND + 1):
            seconds.append(seconds_of(once))
        found[copies] = seconds[-AROUND:]
        print(f"{noun} {copies:>6} {statistics.median(found[copies]):.3f}", flush=True)
    first = statistics.median(found[min(found)])
    rows = []
    for at, own in found.items():
        shown = statistics.median(own), max(own), statistics.median(own) / first
        rows.append([f"{at:,}", *(f"{each:.2f}" for each in shown)])
    what = "An analyst's priced questions, no two alike" if questions else "The same map again and again"
    keep(
        f"{noun.capitalize()}s of one store",
        f"{what}, of {VEHICLES} vehicles: median and largest processor seconds of {AROUND} up to the one "
        "that is named, and the median beside the first line's."
        + (
            f" Before the last line the store was filled up with copies of {noun} {many:,}." if copies else ""
        ),
        [noun, "seconds", "largest", "ratio"],
        rows,
    )


def whole_ledger(folder: Path, sizes: Sequence[int]) -> None:
    """Check the whole ledger of a store filled up to ``sizes``, rising; print and keep what it costs."""
    config, files = city(folder, 3)
    store, key = folder / "store", folder / "store.key"
    workspace = trafficdp.open(config, store=store, create=True)
    workspace.ingest(files)
    workspace.release(force=True)
    rows = []
    for many in sizes:
        fill_up(store, key, many)
        with Vault.open(store) as vault:
            entries = len(vault_ledger.Entries(vault))
            curator = Curator(store, vault, Head(key, vault.store_id))
            check = partial(curator.check_not_behind, whole=True)
            own = [seconds_of(check) for _ in range(AROUND)]
        an_entry = statistics.median(own) / entries * 1e6
        shown = f"{statistics.median(own):.2f}", f"{max(own):.2f}", f"{an_entry:.0f}"
        rows.append([f"{many:,}", f"{entries:,}", *shown])
        print("ledger", *rows[-1], flush=True)
    keep(
        "Checks of the whole ledger",
        "The chain of hashes, the accounts of every vehicle and the manifests of every release, of stores of "
        f"{VEHICLES} vehicles that were filled up with copies of one release: median and largest processor "
        f"seconds of {AROUND} checks, with other work beside them, and the median in microseconds an entry.",
        ["releases", "entries", "seconds", "largest", "an entry"],
        rows,
    )


def fill_up(store: Path, key: Path, many: int) -> None:
    """Make ``many`` releases of those of ``store``: the missing ones are copies of the last."""
    with Vault.open(store) as vault:
        there = vault_releases.all_releases(vault)
        last = there[-1]
        names = [f"r{number:04d}" for number in range(len(there) + 1, many + 1)]
        charges = _copy_in_vault(vault, last, names)
        Head(key, vault.store_id).write(vault_ledger.newest_entry(vault))
    for name in names:
        folder = store / "releases" / last.release_id
        shutil.copytree(folder, folder.with_name(name), copy_function=os.link)
    with attached(store / RELEASED_NAME, "released", "READ_WRITE") as connection:
        with registered(connection, "copies", pa.table({"name": names, "charge": charges})):
            for table in ("releases", "cells"):
                entry = ", charge AS ledger_sequence" if table == "releases" else ""
                connection.execute(
                    f"INSERT INTO {table} BY NAME SELECT {table}.* REPLACE (name AS release_id{entry}) "
                    f"FROM {table}, copies WHERE release_id = ?",
                    [last.release_id],
                )
        connection.execute("CHECKPOINT released")


def _copy_in_vault(vault: Vault, last: vault_releases.StoredRelease, names: Sequence[str]) -> list[int]:
    """Write copies of ``last`` under ``names`` and return the numbers of their charges."""
    ledger = vault_ledger.ledger_rows(vault)
    both = [row.facts for row in ledger if row.facts.get("release") == last.release_id]
    frozen = vault_releases.part_of(vault, last.release_id, "allocation").decode()
    row, entries, charges, specifications = ledger[-1], [], [], []
    for name in names:
        specifications.append(frozen.replace(f'"{last.release_id}"', f'"{name}"'))
        digest = hashlib.sha256(specifications[-1].encode()).hexdigest()
        for facts in both:
            own = {**facts, "release": name}
            if facts["kind"] == "charge":
                own["specification_sha256"] = digest
            row = append(
                row, {each: own[each] for each in own if each not in ("nonce", "sequence")}, new_token()
            )
            entries.append(row)
            charges += [row.sequence] if facts["kind"] == "charge" else []
    copies = pa.table({"name": names, "charge": charges})
    columns = ("sequence", "entry", "head_hash")
    added = pa.table({each: [getattr(row, each) for row in entries] for each in columns})
    cut = vault_releases.PIECE
    pieces = [
        (name, number, text[start : start + cut].encode())
        for name, text in zip(names, specifications, strict=True)
        for number, start in enumerate(range(0, len(text), cut), 1)
    ]
    frozen_pieces = pa.table(dict(zip(("name", "number", "piece"), zip(*pieces, strict=True), strict=True)))
    with vault.transaction("copying a release"), registered(vault.connection, "copies", copies):
        with registered(vault.connection, "added", added):
            vault.run("INSERT INTO ledger FROM added")
        vault.run("INSERT INTO releases SELECT name, charge, true, true, false FROM copies")
        vault.run(
            "INSERT INTO vehicle_charges SELECT charge, vehicle_id, loss_pico FROM vehicle_charges, copies "
            "WHERE sequence = ? ORDER BY charge, vehicle_id",
            [last.sequence],
        )
        vault.run(
            "INSERT INTO release_pieces SELECT name, part, number, piece FROM release_pieces, copies "
            "WHERE release_id = ? AND part <> 'allocation' ORDER BY name, part, number",
            [last.release_id],
        )
        vault.run(
            "INSERT INTO release_index SELECT release_index.* REPLACE (name AS release_id) "
            "FROM release_index, copies WHERE release_id = ?",
            [last.release_id],
        )
        with registered(vault.connection, "frozen", frozen_pieces):
            vault.run(
                "INSERT INTO release_pieces SELECT name, 'allocation', number, piece FROM frozen",
            )
    return charges


def main() -> None:
    """Read the command line and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--every", type=int, default=7, help="days from release to release")
    parser.add_argument("--releases", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--copies", type=int, default=10_000)
    parser.add_argument("--ledger", type=int, nargs="*", default=(1000, 2000, 5000, 10_000))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        warm(Path(temporary) / "warm")
        for noun, many in (("releases", options.releases), ("questions", options.questions)):
            if many:
                again_and_again(Path(temporary) / noun, many, options.copies, questions=noun == "questions")
        if options.ledger:
            whole_ledger(Path(temporary) / "ledger", options.ledger)
        if options.days:
            days_of_a_store(Path(temporary) / "days", options.days, options.every)


if __name__ == "__main__":
    main()
