"""Give every reader bytes that nobody wrote, guided by which lines of ours they reach; keep what is new.

    python pipelines/fuzz.py [--targets csv ...] [--seconds 60] [--write]

Needs Atheris (``pip install atheris``), which no other part does. Inputs that reach new lines are kept in
build/fuzz/TARGET, and what anything but our own errors comes of in build/fuzz/crashes. ``--write`` adds some
of the former to the small corpora in data/fuzz, which a test reads again, and renews the table there of the
cases of all runs. A crash is mended, and its input goes to data/fuzz/TARGET by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "fuzz"
KEPT = ROOT / "data" / "fuzz"
LONGEST = 65_536
"""Bytes of an input."""
INSTRUMENTED = [
    f"trafficdp.{each}"
    for each in (
        "ingest",
        "config",
        "context",
        "query",
        "model",
        "cli.commands.init",
        "simulation.city",
        "export.files",
    )
]
"""Whose lines guide it: to watch all of them takes longer to begin."""
SMALLEST, MOST = 2000, 12
"""Corpora keep so many inputs of at most so many bytes."""
MEMORY_MB = 4096
SLOW_SECONDS = 20


def fuzz_one(name: str, arguments: list[str]) -> None:
    """Fuzz one target in this process until libFuzzer ends it."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=INSTRUMENTED):
        targets = importlib.import_module("fuzz_targets")
    crashes = WORK / "crashes" / name
    crashes.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:

        def one_input(content: bytes) -> None:
            error = targets.crash_of(name, content, Path(folder))
            if error is not None:
                place = _place(error)
                if place not in seen:
                    seen.add(place)
                    known = hashlib.sha256(place.encode()).hexdigest()[:12]
                    (crashes / known).write_bytes(content)
                    print(f"CRASH {name}: {place}", flush=True)

        def changed(content: bytes, most: int, seed: int) -> bytes:
            found = with_another_value(content, random.Random(seed)) if seed % 4 else None
            return (found or bytes(atheris.Mutate(content, most)))[:most]

        atheris.Setup([sys.argv[0], *arguments], one_input, custom_mutator=changed)
        atheris.Fuzz()


VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    0.5,
    1e308,
    10**400,
    "",
    "x",
    "\ud800",
    "nan",
    "2020-01-01",
    [],
    {},
    [[]],
    [None],
    {"": 0},
)
"""What stands in the place of a value of JSON."""


def with_another_value(content: bytes, chance: random.Random) -> bytes | None:
    """Return a JSON document, or lines of them, in which one value is another; None for anything else."""
    lines = content.split(b"\n") if b"}\n{" in content else [content]
    at = chance.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except (ValueError, RecursionError):
        return None
    places = [*_places([document])]
    holder, key = places[chance.randrange(len(places))]
    holder[key] = chance.choice([*VALUES, *(there[name] for there, name in places[:40])])
    if chance.randrange(3) == 0 and isinstance(holder, dict):
        holder[chance.choice([*map(str, holder), "x"])] = holder.pop(key)
    root = places[0][0][0]
    try:
        lines[at] = json.dumps(root).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None
    return b"\n".join(lines)


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - whatever JSON holds
    """Yield (holder, key) of every value."""
    for key in [*value] if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list) and depth < 50:
            yield from _places(value[key], depth + 1)


def _place(error: BaseException) -> str:
    """Return the kind of an error and the last line of ours that it came from."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if "trafficdp" in file.parts:
            place = f"{file.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {place}"


def run(name: str, seconds: int) -> int:
    """Fuzz one target for some seconds in a process of its own; return how many inputs it was given."""
    targets = importlib.import_module("fuzz_targets")
    corpus = WORK / name
    corpus.mkdir(parents=True, exist_ok=True)
    begin = [*targets.seeds(name), *(each.read_bytes() for each in sorted((KEPT / name).glob("*")))]
    for content in begin:
        (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-rss_limit_mb={MEMORY_MB}"]
    options += [f"-timeout={SLOW_SECONDS}", f"-artifact_prefix={WORK / 'crashes'}/", "-print_final_stats=1"]
    command = [sys.executable, __file__, "--one", name, "--", str(corpus), *options]
    (WORK / "crashes").mkdir(exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    said = done.stdout + done.stderr
    for line in said.splitlines():
        if line.startswith("CRASH") or "ERROR: libFuzzer" in line:
            print(line, flush=True)
    (cases,) = re.findall(r"number_of_executed_units: (\d+)", said) or ["0"]
    print(f"{name}: {int(cases):,} cases, {len(list(corpus.iterdir()))} inputs", flush=True)
    return int(cases)


def keep(name: str) -> None:
    """Renew the small corpus of one target: of what was found, the shortest of different lengths."""
    found: dict[int, bytes] = {}
    for path in sorted((WORK / name).iterdir(), key=lambda each: (each.stat().st_size, each.name)):
        found.setdefault(path.stat().st_size.bit_length() * 4 + int(path.name, 16) % 4, path.read_bytes())
    (KEPT / name).mkdir(parents=True, exist_ok=True)
    for content in [each for each in found.values() if len(each) <= SMALLEST][-MOST:]:
        (KEPT / name / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)


def table(cases: dict[str, int]) -> Iterator[str]:
    """Yield the lines of the table of cases."""
    yield "| reader | cases |"
    yield "| --- | ---: |"
    yield from (f"| {name.replace('_', ' ')} | {number:,} |" for name, number in cases.items())
    yield f"| all | {sum(cases.values()):,} |"


def main() -> int:
    """Fuzz what is asked for; exit 1 where there was a crash."""
    if "--one" in sys.argv:
        fuzz_one(sys.argv[2], sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*importlib.import_module("fuzz_targets").TARGETS]
    parser.add_argument("--targets", nargs="+", choices=names, default=names, help="some of the readers")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--write", action="store_true", help="renew data/fuzz")
    options = parser.parse_args()
    counted = WORK / "cases.json"
    cases = json.loads(counted.read_text(encoding="utf-8")) if counted.exists() else {}
    for name in options.targets:
        cases[name] = cases.get(name, 0) + run(name, options.seconds)
        counted.write_text(json.dumps(cases), encoding="utf-8")
    if options.write:
        for name in options.targets:
            keep(name)
        (KEPT / "table.md").write_text("\n".join(table(cases)) + "\n", encoding="utf-8")
    return int(any((WORK / "crashes").rglob("*")))


if __name__ == "__main__":
    sys.exit(main())
