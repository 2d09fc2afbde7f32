"""Let every command fail at every place where it touches the disk; say what the next command makes of it.

    python pipelines/faults.py [--city FOLDER] [--kinds KIND...] [--commands NAME...] [--every N] [--write]

Places are system calls on files of the city, counted by answering them (``system_calls``): no run depends on
the machine's speed. Every case begins with a copy of a prepared store, and after the fault runs the same
command once more. What must hold then is in ``Examination``. Cases go to build/faults/cases.jsonl, one a
line; those that are there and were sound are not run again. ``--write`` renews data/faults/table.md.

FOLDER holds trafficdp.toml, day1.csv and day2.csv. Without it, the city is Austin (TRAFFICDP_REAL_DATA).
"""

from __future__ import annotations

import argparse
import errno
import json
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

# it lists the fonts that there are, for all time: a command that is short of memory would list few
import matplotlib.font_manager  # noqa: F401

from fault_commands import COMMANDS, RELEASE, Facts, austin, copy_of, facts_of, kept, run, run_one
from store_damage import damage, damages, put_back, subsets
from system_calls import READS, SYNCS, WRITES, Call, Decision, Kill, PowerCut, watched, why_not
from trafficdp.errors import StoreUnavailableError

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "data" / "faults"
CANNOT = 77
"""Exit code where nothing can be tried on this machine."""
HALF_WRITTEN = ("write", "pwrite64")
KILLS = ("killed", "half written", "power cut", "power cut, names last")
ERRORS = {
    "disk full": errno.ENOSPC,
    "input/output error": errno.EIO,
    "too many open files": errno.EMFILE,
    "read-only": errno.EROFS,
}
KINDS = (*KILLS, *ERRORS, "second process", "clock", "memory", "damaged file", "older copy")
_HOUR, _YEAR = timedelta(hours=1), timedelta(days=366)
CLOCKS = {
    "an hour back": (-_HOUR,),
    "a year on": (_YEAR,),
    "to 1970": (datetime(1970, 1, 2, tzinfo=UTC) - datetime.now(UTC),),
    "fifty years on": (50 * _YEAR,),
    "an hour back and forth": (-_HOUR, _HOUR),
    "a year on and back": (_YEAR, timedelta()),
}
"""How wrong the clock is, one after another, each time that a command asks for it."""
MEMORY = (0, 4, 16, 32, 64, 96, 128, 192, 256)
"""Megabytes that a command may take beyond what it has when it begins."""
LOOKING = (("doctor",), ("status",), ("verify", "r0001"), ("sql", "SELECT count(*) FROM cells"), RELEASE)
"""What is run on a store that was damaged or put back, in order."""


@dataclass(frozen=True)
class Case:
    """One fault."""

    command: str
    kind: str
    place: int
    """The number of the call that meets it, or of what is listed above."""
    detail: str = ""


@dataclass
class Outcome:
    """What became of a case; sound where there is no problem."""

    case: Case
    code: int
    """Exit code of the command that met the fault, negative after a signal."""
    said: str
    """Its last line on standard error."""
    again: int
    """Exit code of the same command, run once more."""
    problems: list[str] = field(default_factory=list)


def without_disk(call: Call) -> int:
    """Let every call through; nobody waits for a disk whose power stays."""
    return -1 if call.number in SYNCS else 0


@dataclass
class Bench:
    """Prepared stores, and cases tried on copies of them."""

    folder: Path
    expected: dict[str, Facts] = field(default_factory=dict)
    calls: dict[str, list[Call]] = field(default_factory=dict)

    def prepare(self, city: Path) -> None:
        """Make the stores that commands begin with."""
        template = self.folder / "empty"
        shutil.copytree(city, template)
        steps: dict[str, Sequence[Sequence[str]]] = {
            "empty": (("init",),),
            "released": (("ingest", "day1.csv.gz"), RELEASE, ("plan", "--save", "kept")),
            "read": (("ingest", "day2.csv.gz"),),
            "later": (RELEASE,),
        }
        before = template
        for name, commands in steps.items():
            if name != "empty":
                shutil.copytree(before, self.folder / name)
            before = self.folder / name
            for words in commands:
                code, said = run(before, words)
                if code:
                    raise SystemExit(f"{words}: exit {code}: {said}")
        for command in COMMANDS.values():
            # what it imports late is there when a child begins
            with self.copy(command.begins) as folder:
                run_one(folder, command)
                for words in LOOKING:
                    run_one(folder, replace(command, words=words))

    @contextmanager
    def copy(self, name: str) -> Iterator[Path]:
        """A copy of a prepared store, removed afterwards."""
        folder = self.folder / "trial" / "city"
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir()
        shutil.copytree(self.folder / name, folder)
        yield folder

    def in_child(
        self, work: Callable[[], object], folder: Path, decide: Decision = without_disk
    ) -> tuple[int, Any]:
        """Run ``work`` in a watched child; return its exit status, and what it returned if it came so far."""
        told = self.folder / "told.json"
        told.unlink(missing_ok=True)

        def child() -> int:
            told.write_text(json.dumps(work()), encoding="utf-8")
            return 0

        status = watched(child, folder, decide)
        return status, json.loads(told.read_text(encoding="utf-8")) if status == 0 else None

    def rehearse(self, name: str) -> list[Call]:
        """Return the calls of a command that nothing happens to; note what it leaves."""
        if name not in self.calls:
            command = COMMANDS[name]
            with self.copy(command.begins) as folder:
                seen: list[Call] = []

                def work() -> object:
                    code = run_one(folder, command)
                    return code, facts_of(folder)

                def note(call: Call) -> int:
                    seen.append(call)
                    return without_disk(call)

                status, told = self.in_child(work, folder, note)
                if status or told[0][0]:
                    raise SystemExit(f"{name} does not run: {told}")
                self.calls[name], self.expected[name] = seen, told[1]
        return self.calls[name]

    # Which cases there are.

    def cases(self, name: str, kind: str) -> Iterator[Case]:
        """Yield every case of a kind for one command."""
        calls = self.rehearse(name)
        for place, call in enumerate(calls):
            writes = call.number in WRITES
            if kind in ("killed", "power cut", "second process", "disk full", "read-only"):
                meets = call.lasting
            elif kind == "half written":
                meets = writes and call.name in HALF_WRITTEN and call.arguments[2] > 1
            elif kind == "power cut, names last":
                meets = call.lasting and call.number not in SYNCS
            elif kind == "input/output error":
                meets = writes or call.number in READS or call.number in SYNCS
            else:
                meets = kind == "too many open files" and call.name == "openat"
            if meets and call.path.name != COMMANDS[name].stdin:
                yield Case(
                    name, kind, place, f"{call.name} {call.path.name}".replace(_head(call.path), "head")
                )
        if kind in KILLS:
            yield Case(name, kind, len(calls), "the end")
        if kind == "clock":
            for place in range(1, 4):
                yield from (Case(name, kind, place, each) for each in CLOCKS)
        if kind == "memory":
            yield from (Case(name, kind, each, f"{each} MB") for each in MEMORY)

    # What a fault does.

    def try_out(self, case: Case) -> Outcome:
        """Run one case."""
        command = COMMANDS[case.command]
        with self.copy(command.begins) as folder:
            cut = PowerCut(folder, folder.parent / "spare")
            cut.spare.mkdir()
            told = folder.parent / "told.json"

            def work() -> int:
                with _surroundings(case):
                    code, said = run_one(folder, command)
                told.write_text(json.dumps([code, said]), encoding="utf-8")
                return 0

            place, others = 0, []

            def decide(call: Call) -> int:
                nonlocal place
                here, place = place, place + 1
                if case.kind.startswith("power cut") and here < case.place:
                    return cut.note(call)
                if case.kind in ("disk full", "read-only") and here >= case.place and call.lasting:
                    return without_disk(call) or ERRORS[case.kind]
                if here != case.place:
                    return without_disk(call)
                # a stream may make another call at this place than it made when it was rehearsed
                if case.kind == "half written" and call.name in HALF_WRITTEN:
                    call.half_done()
                if case.kind in KILLS:
                    raise Kill
                if case.kind == "second process":
                    others.append(self._second(folder, case))
                return ERRORS.get(case.kind, 0) or without_disk(call)

            try:
                status = watched(work, folder, decide)
            except TimeoutError:
                return Outcome(case, 1, "", 1, ["it hangs"])
            code, said = json.loads(told.read_text(encoding="utf-8")) if status == 0 else (status, "")
            if case.kind.startswith("power cut"):
                cut.happen(names_last=case.kind.endswith("last"))
            outcome = Outcome(case, code, said, 1)
            outcome.problems += problems_of_telling(code, said, killed=case.kind in KILLS)
            for second, words in others:
                outcome.problems += problems_of_telling(second, words, killed=False)
            done = sum(second == 0 for second, _ in others if case.place % 3 == 0)
            _, found = self.in_child(lambda: Examination(self, case, folder).run(code, done), folder)
            again, problems = found or (1, ["the examination fails"])
            outcome.again = again
            outcome.problems += problems
            return outcome

    def _second(self, folder: Path, case: Case) -> tuple[int, str]:
        """Run another command while the first waits: the same, one that looks, or one that reads maps."""
        command = COMMANDS[case.command]
        words = (command.words, ("status",), ("sql", "SELECT count(*) FROM releases"))[case.place % 3]
        other = replace(command, words=words)
        status, told = self.in_child(lambda: run_one(folder, other, "--wait", "0"), Path("/nowhere"))
        return (status, "") if told is None else (told[0], told[1])


def _head(path: Path) -> str:
    return path.name if path.name.endswith((".head", ".head.new")) else "\0"


@contextmanager
def _surroundings(case: Case) -> Iterator[None]:
    """Set this process's clock and memory as ``case`` wants it."""
    if case.kind == "memory":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + case.place * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return
    if case.kind == "clock":
        asked = 0

        class Clock(datetime):
            @classmethod
            def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
                nonlocal asked
                asked += 1
                right = datetime.now(tz)  # type: ignore[arg-type]
                wrong = CLOCKS[case.detail]
                return right + wrong[(asked - case.place) % len(wrong)] if asked >= case.place else right

        for name, module in [*sys.modules.items()]:
            if name.startswith("trafficdp.") and getattr(module, "datetime", None) is datetime:
                module.datetime = Clock  # type: ignore[attr-defined]
    yield


def problems_of_telling(code: int, said: str, *, killed: bool) -> list[str]:
    """Return what is wrong with how a command ended."""
    if code == 0 or (killed and code == -9):
        return []
    problems = []
    if code not in (2, 3, 4, 5, 6):
        problems.append(f"exit {code}: {said}")
    elif " | " in said or not said:
        problems.append(f"not one line: {said}")
    elif code == StoreUnavailableError.exit_code and "[no advice]" in said:
        problems.append(f"does not say what to do: {said}")
    return problems


@dataclass
class Examination:
    """What must hold after a fault: nothing lost that was told, charged twice or drawn twice, and healed."""

    bench: Bench
    case: Case
    folder: Path
    problems: list[str] = field(default_factory=list)

    def require(self, holds: bool, what: str) -> None:
        """Note ``what`` unless it ``holds``."""
        if not holds:
            self.problems.append(what)

    def run(self, code: int, done: int) -> tuple[int, list[str]]:
        """Examine, run the command once more, examine again; return its exit code and the problems.

        ``code`` is that of the first, and the same command was run to its end ``done`` times besides.
        """
        command, expected = COMMANDS[self.case.command], self.bench.expected[self.case.command]
        before, left = facts_of(self.bench.folder / command.begins), facts_of(self.folder)
        times = left.get(command.effect, 0) - before.get(command.effect, 0)
        self.require(times >= (code == 0) + (done if command.again == "acts" else 0), "what was told is lost")
        self.compare(before, left, "before the fault")
        again, said = run_one(self.folder, command)
        refused = command.again == "refuses" and times > 0
        self.require(again == (2 if refused else 0), f"the next run ends with {again}: {said}")
        after = facts_of(self.folder)
        self.compare(left, after, "at the fault")
        wanted = times + 1 if command.again == "acts" else 1
        found = after.get(command.effect, 0) - before.get(command.effect, 0)
        self.require(found == wanted, f"{command.effect}: {found} times, not {wanted}")
        for name in ("charge", "publication", "withdrawal", "stream", "stream_publication", "promise"):
            self.require(after.get(name, 0) == expected.get(name, 0), f"{name}: {after.get(name, 0)}")
        for name in ("charged", "records", "counted", "rows"):
            same = json.dumps(after.get(name)) == json.dumps(expected.get(name))
            self.require(same, f"other {name}")
        for file in sorted({*after["names"]} ^ {*expected["names"]}):
            self.problems.append(f"the file {file}")
        # after forgetting, losses can no longer be recomputed
        newest = self.living(after)[-1:] if self.case.command != "forget" else []
        for words in (("doctor",), *(("verify", each) for each in newest)):
            ended, said = run_one(self.folder, replace(command, words=words))
            self.require(ended == 0, f"{words} ends with {ended}: {said}")
        return again, self.problems

    def compare(self, before: Facts, after: Facts, when: str) -> None:
        """Note what of ``before`` is no longer there."""
        for name in ("entries", "accounts", "values"):
            self.require(kept(before, after, name), f"{name} of {when} are gone or others")
        if self.case.command != "withdraw":
            self.require(kept(before, after, "published"), f"published files of {when} are gone or others")

    def living(self, facts: Facts) -> list[str]:
        """Return the names of what is published and not withdrawn."""
        streams = sorted(each.name for each in (self.folder / "city.store" / "releases").glob("s*"))
        return sorted({Path(each).parent.name for each in facts["published"]}) + streams


def look(bench: Bench, case: Case) -> Outcome:
    """Damage a store, or put parts of it back, and run commands on it."""
    with bench.copy(case.command) as folder:
        if case.kind == "damaged file":
            damage(folder, case.detail, case.place)
        else:
            put_back(folder, case.detail, bench.folder / "released")
        whole = bench.folder / case.command
        try:
            status, found = bench.in_child(lambda: _looked_at(case, folder, whole), folder)
        except TimeoutError:
            return Outcome(case, 1, "", 1, ["it hangs"])
        if found is None:
            return Outcome(case, status, "", status, [f"a command dies: {status}"])
        codes, said, problems = found
        return Outcome(case, codes[0], said, codes[-1], problems)


def _looked_at(case: Case, folder: Path, whole: Path) -> tuple[list[int], str, list[str]]:
    def facts_or_none(of: Path) -> Facts | None:
        try:
            return facts_of(of)
        except (duckdb.Error, OSError, ValueError):
            return None

    template, before = facts_of(whole), facts_or_none(folder)
    codes, words, problems = [], [], []
    for each in (*LOOKING, (*RELEASE, "--again")):
        code, said = run(folder, each)
        codes.append(code)
        words.append(said)
        problems += [f"{each[0]}: {problem}" for problem in problems_of_telling(code, said, killed=False)]
    after = facts_or_none(folder)
    # nothing is left that could tell that the whole store is older
    all_older = {"vault.duckdb", "releases", "head"} <= {*case.detail.split(", ")}
    for name in ("entries", "accounts", "values"):
        if before is not None and after is not None and not kept(before, after, name):
            problems.append(f"{name} are gone or others")
        other = (
            case.command == "later" and not all_older and (before is None or before[name] != template[name])
        )
        if other and codes[0] == 0:
            problems.append(f"doctor does not see other {name}")
    published = {Path(name).parts[1] for name in template["published"]}
    known = {name: each for name, each in template["values"].items() if name in published}
    drawn = {} if after is None else after["values"]
    if not all_older and any(drawn.get(each, known[each]) != known[each] for each in known):
        problems.append("noise was drawn a second time")
    return codes, next(filter(None, words), ""), problems


# All of it.


def all_cases(bench: Bench, kinds: Sequence[str], commands: Sequence[str], every: int) -> Iterator[Case]:
    """Yield every ``every``-th case of each kind; of the few older copies all."""
    for kind in kinds:
        if kind == "damaged file":
            there = [("later", *each) for each in damages(bench.folder / "later", "city.store")]
            logs = damages(bench.folder / "interrupted", "city.store", ".wal")
            there += [("interrupted", *each) for each in logs]
            yield from [Case(name, kind, place, what) for name, what, place in there][::every]
        elif kind == "older copy":
            yield from [Case("later", kind, n, each) for n, each in enumerate(subsets())]
        else:
            for name in commands:
                yield from [*bench.cases(name, kind)][::every]


def interrupt(bench: Bench) -> None:
    """Make the store "interrupted": a release was charged, and the log of the vault is not yet worked in."""
    command = COMMANDS["release"]
    folder = bench.folder / "interrupted"
    shutil.copytree(bench.folder / command.begins, folder)
    synced = False

    def decide(call: Call) -> int:
        nonlocal synced
        if synced and call.name == "pwrite64":
            raise Kill
        synced = synced or (call.number in SYNCS and call.path.suffix == ".wal")
        return 0

    watched(lambda: run_one(folder, command)[0], folder, decide)
    assert (folder / "city.store" / "vault.duckdb.wal").exists()


def table(outcomes: Sequence[Any]) -> Iterator[str]:
    """Yield the lines of the table of outcomes by kind."""
    yield "| fault | faults | as if nothing had been | refused | killed | healed and sound |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for kind in KINDS:
        found = [each for each in outcomes if each["case"]["kind"] == kind]
        codes = Counter(
            "ok" if each["code"] == 0 else "killed" if each["code"] == -9 else "refused" for each in found
        )
        sound = sum(not each["problems"] for each in found)
        numbers = len(found), codes["ok"], codes["refused"], codes["killed"], sound
        yield f"| {kind} | {' | '.join(f'{each:,}' for each in numbers)} |"


def main() -> int:
    """Run what is asked for; exit 1 where something was not sound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--city", type=Path, help="folder of a city; else Austin")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="some of the kinds")
    parser.add_argument(
        "--commands", nargs="+", choices=[*COMMANDS], default=[*COMMANDS], help="some of them"
    )
    parser.add_argument("--every", type=int, default=1, help="run one case in so many")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "faults", help="folder for the cases")
    parser.add_argument("--write", action="store_true", help="renew data/faults")
    options = parser.parse_args()
    if why_not():
        print(why_not(), file=sys.stderr)
        return CANNOT
    options.into.mkdir(parents=True, exist_ok=True)
    log = options.into / "cases.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    # what was not sound is tried again
    done = [each for each in map(json.loads, lines) if not each["problems"]]
    known = {json.dumps(each["case"], sort_keys=True) for each in done}
    with tempfile.TemporaryDirectory() as folder, log.open("a", encoding="utf-8") as written:
        bench = Bench(Path(folder))
        city = Path(folder) / "city"
        city.mkdir()
        if options.city is None:
            austin(city)
        else:
            copy_of(options.city, city)
        bench.prepare(city)
        interrupt(bench)
        for case in all_cases(bench, options.kinds, options.commands, options.every):
            if json.dumps(asdict(case), sort_keys=True) in known:
                continue
            outcome = asdict((look if case.kind in KINDS[-2:] else Bench.try_out)(bench, case))
            done.append(outcome)
            print(json.dumps(outcome), file=written, flush=True)
            if outcome["problems"]:
                print(case, outcome["code"], outcome["said"], outcome["problems"], flush=True)
    lines = [*table(done)]
    print("\n".join(lines))
    if options.write:
        KEPT.mkdir(exist_ok=True)
        (KEPT / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(any(each["problems"] for each in done))


if __name__ == "__main__":
    sys.exit(main())
