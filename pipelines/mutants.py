"""Does a test notice? One line of the privacy core is changed at a time: data/mutants/table.md.

    python pipelines/mutants.py [--record FILE] [--results FILE] [--into FILE] [--limit SECONDS]
                                [--only TEXT] [--ask TESTS...] [--anew]

A seeded sample of EACH changes of every room of ROOMS, and the NAMED ones. Cosmic Ray makes them, chosen
because its operators turn text into text: what is changed can be listed, sampled and read.

In a copy of the repository, a process that has loaded the libraries forks for every mutant; the child runs
the tests that execute the line, as `executed.py` recorded them, the module's own first, then the shortest,
up to the first failure. It counts once the same test, run in the same way, has passed on the code as it is.
What was found is appended to FILE, so that a run may be stopped and continued; ``--ask`` shows the survivors
to tests that were written since. A row of the table stands while its line and its test do, and the test
passes; ``--anew`` examines all. Where nothing was noticed, the last column of
the table is written by hand: why the change costs no privacy and nothing that is promised. It is kept when
the table is written anew.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "data" / "mutants" / "table.md"
ROOMS = ("privacy", "noise", "measurement", "bounding", "mechanisms", "stream", "release")
EACH = 43
SEED = "waist"
OPERATORS = [
    f"core/{name}"
    for name in (
        *("NumberReplacer", "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr"),
        *("ReplaceOrWithAnd", "RemoveDecorator", "ZeroIterationForLoop", "ReplaceBreakWithContinue"),
        "ReplaceContinueWithBreak",
        *(f"ReplaceUnaryOperator_Delete_{sign}" for sign in ("USub", "Not", "Invert")),
        *(
            f"ReplaceBinaryOperator_{change}"
            for change in (
                *("Add_Sub", "Sub_Add", "Mul_Div", "Mul_Add", "Div_Mul", "Div_FloorDiv", "FloorDiv_Div"),
                *("FloorDiv_Mul", "Mod_FloorDiv", "Pow_Mul", "LShift_RShift", "RShift_LShift"),
                *("BitAnd_BitOr", "BitOr_BitAnd"),
            )
        ),
        *(
            f"ReplaceComparisonOperator_{change}"
            for change in (
                *("Gt_GtE", "GtE_Gt", "Gt_Lt", "Lt_LtE", "LtE_Lt", "Lt_Gt", "Eq_NotEq", "NotEq_Eq"),
                *("Is_IsNot", "IsNot_Is"),
            )
        ),
    )
]
"""Changes that a person could make and still run; not `*` to `<<`, which floats refuse by themselves."""
NAMED = {
    "moments: the noise of products halved": (
        "mechanisms/laplace/calibrated.py",
        "scale[VARIANCE] = _drawable(np.ldexp(second, shift), VARIANCE)",
        "scale[VARIANCE] = _drawable(np.ldexp(second, shift) / 2, VARIANCE)",
    ),
    "stream: the scale of products halved": (
        "stream/service.py",
        "scales = [self.allowance.mean_scale, self.allowance.product_scale][: self.bank.levels]",
        "scales = [self.allowance.mean_scale, self.allowance.product_scale // 2][: self.bank.levels]",
    ),
    "AKMV: the noise halved": (
        "mechanisms/per_statistic/clipping.py",
        "scale=means.laplace_scale(threshold, epsilon / 2)",
        "scale=means.laplace_scale(threshold, epsilon / 2) / 2",
    ),
    "two_stage: the scale of the choice halved": (
        "mechanisms/per_statistic/two_stage.py",
        "return ClaimedScores(support, change, choice_scale(change, epsilon / 2), self.kind, theorem)",
        "return ClaimedScores(support, change, choice_scale(change, epsilon / 2) / 2, self.kind, theorem)",
    ),
    "coordinate_quantile: the scale halved, where it is stated": (
        "mechanisms/per_statistic/plan.py",
        "return 2 / math.sqrt(8 * pico / PICO) * (1 + 2.0**-40)",
        "return 1 / math.sqrt(8 * pico / PICO) * (1 + 2.0**-40)",
    ),
    "quantiles drawn at half the scale": (
        "measurement/sets.py",
        "cell = source.choose(cost, weight, start, self.scale)[0]",
        "cell = source.choose(cost, weight, start, self.scale / 2)[0]",
    ),
    "choices by claimed scores drawn at half the scale": (
        "measurement/measure.py",
        "return np.asarray(self._source.choose(cost, weight, start, scores.scale)[0])",
        "return np.asarray(self._source.choose(cost, weight, start, scores.scale / 2)[0])",
    ),
    "Laplace noise drawn at half the scale": (
        "measurement/laws.py",
        "return source.laplace(sums, self.scale)",
        "return source.laplace(sums, self.scale / 2)",
    ),
    "Gaussian noise drawn at half the scale": (
        "measurement/laws.py",
        "return source.gaussian(sums, self.sd)",
        "return source.gaussian(sums, self.sd / 2)",
    ),
    "block noise drawn at half the scale": (
        "measurement/laws.py",
        "scale = np.full(self.blocks, self.scale)",
        "scale = np.full(self.blocks, self.scale / 2)",
    ),
    "noise of a stream's nodes drawn at half the scale": (
        "measurement/nodes.py",
        "self.noise[row, height, slot] = source.discrete_laplace(self.scale[row])",
        "self.noise[row, height, slot] = source.discrete_laplace(self.scale[row] / 2)",
    ),
    "huber: alpha doubled, so that the noise is halved": (
        "mechanisms/per_statistic/huber.py",
        ")[which]",
        ")[which] * 2",
    ),
    "huber: the noise halved where it is added": (
        "mechanisms/per_statistic/huber.py",
        "noisy = centre + smooth / plan.alpha[plan.huber] * drawn",
        "noisy = centre + smooth / plan.alpha[plan.huber] * drawn / 2",
    ),
    "two_stage: an interval that begins at the exact minimum": (
        "mechanisms/per_statistic/two_stage.py",
        "return low, np.maximum(low, high)",
        "return np.full(bins, int((totals // counts.count).min())), np.maximum(low, high)",
    ),
    "quantiles: the exact mean where a bin has more than 5 vehicles": (
        "measurement/sets.py",
        "return np.asarray(begin[cell] + source.uniform_below(weight[cell]))",
        "own = source.uniform_below(weight[cell]); "
        "return np.where(np.diff(start) > 11, int(np.mean(values)), begin[cell] + own)",
    ),
    "vehicle quantiles: the exact mean where a bin has more than 40 vehicles": (
        "mechanisms/quantiles.py",
        "value = np.minimum(measure.select(step, own) * grain, bound.upper_steps).astype(np.float64)",
        "value = np.where(counts.users_per_bin > 40, own.mean() * grain, measure.select(step, own) * grain)",
    ),
    "a node of a stream is touched one element too late": (
        "measurement/nodes.py",
        "before = np.asarray(position, dtype=np.int64)[..., None] - 1",
        "before = np.asarray(position, dtype=np.int64)[..., None]",
    ),
    "stream: records of the open window take no room in an account": (
        "stream/service.py",
        "reserved = self.window.records_per_vehicle(len(self.vehicles)) * heights",
        "reserved = self.window.records_per_vehicle(len(self.vehicles)) * 0",
    ),
    "stream: records of the open window take no room under a cap": (
        "stream/service.py",
        'taken = pd.Series(open_["count"]).groupby(pack(open_["vehicle"], open_["step"])).sum()',
        'taken = pd.Series(0 * open_["count"]).groupby(pack(open_["vehicle"], open_["step"])).sum()',
    ),
    "Gaussian noise with a standard deviation that is rounded down": (
        "noise/source.py",
        'return _noisy(make_gaussian, l2_distance(T="f64"), sd, sums)',
        'return _noisy(make_gaussian, l2_distance(T="f64"), np.floor(sd), sums)',
    ),
    "a nonce of the ledger that is always the same": (
        "store/vault_ledger.py",
        "row = append(newest_entry(vault), facts, new_token())",
        'row = append(newest_entry(vault), facts, 64 * "0")',
    ),
    "a curator who does not ask for the budget": (
        "release/curator.py",
        "vault_ledger.require_budget(self.vault, vehicle, loss, policy, specification.created_at)",
        "pass",
    ),
    "a meter that stops at ten times the charge": (
        "measurement/measure.py",
        "if bool(np.any(self.spent > self._charge)):",
        "if bool(np.any(self.spent > 10 * self._charge)):",
    ),
}
"""Mistakes that once passed every test, and noise that is not what was priced: file, line, as changed."""
LIBRARIES = (
    *(
        "numpy",
        "scipy.optimize",
        "scipy.stats",
        "pandas",
        "pyarrow.parquet",
        "duckdb",
        "opendp.prelude",
        "h3",
    ),
    *("pytest", "hypothesis.strategies", "pydantic", "jsonschema", "sqlglot", "geopandas", "jinja2", "typer"),
)
MOST_FILES = 10
PATIENCE = 30
"""Seconds of computing after which a test is said not to end."""
HEAD = """# One line changed at a time, and the test that notices

Written by `make mutants`: changes of lines sampled by a seed ({rooms}),
and {named} mistakes that once passed every test or draw other noise than was priced, which are among them.
{killed} of {all} are noticed, each by a test that passes on the code as it is; {survived} survive, each
with the reason why that costs no privacy and nothing that is promised (`open` where that is not settled).
A row stands as long as its line and its test do, and the test passes: what changed since is sampled anew and
examined, the others were when they came in (`--anew` examines all).

| file | line | becomes | noticed by, or why not |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Mutant:
    """``source`` is the text of ``file`` with ``after`` for ``before``, in the lines of ``statement``."""

    file: str
    before: str
    after: str
    source: str
    statement: range

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it, wherever its line moves to."""
        return self.file, self.before, self.after


def sample(root: Path, rooms: tuple[str, ...] = ROOMS, each: int = EACH) -> Iterator[Mutant]:
    """Yield the mutants that SEED picks, at most one a line: NAMED, then ``each`` of every room."""
    for name, before, after in NAMED.values():
        file = f"trafficdp/{name}"
        text = (root / file).read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise SystemExit(
                f"a named mistake fits {text.count(before)} lines of {file}, expected 1: {before}"
            )
        changed = text.replace(before, after)
        yield Mutant(file, before, after, changed, _statement(text, _difference(text, changed)[2]))
    for room in rooms:
        sites = [site for path in (root / "trafficdp" / room).rglob("*.py") for site in _sites(root, path)]
        lines: set[tuple[str, int]] = set()
        for _, file, line, operator, occurrence in sorted(sites):
            if len(lines) == each:
                break
            text = (root / file).read_text(encoding="utf-8")
            changed = mutate_code(text, get_operator(operator)(), occurrence)
            if (file, line) in lines or changed is None or changed == text:
                continue
            lines.add((file, line))
            old, new, where = _difference(text, changed)
            yield Mutant(file, old, new, changed, _statement(text, where))


def _sites(root: Path, path: Path) -> Iterator[tuple[str, str, int, str, int]]:
    """All changes of a file: a number by SEED to sort by, file, line, operator and its occurrence."""
    text = path.read_text(encoding="utf-8")
    lines, types = text.splitlines(), _type_spans(text)
    file = path.relative_to(root).as_posix()
    nodes = list(ast_nodes(get_ast(text)))
    for name in OPERATORS:
        operator = get_operator(name)()
        places = [place for node in nodes for place in operator.mutation_positions(node)]
        for occurrence, ((line, column), _) in enumerate(places):
            here = lines[line - 1]
            # neither a promise to programmers nor the star of a signature
            words = "frozen" in here or here[column:].startswith("*,")
            if not words and not any(start <= (line, column) < end for start, end in types):
                told = f"{SEED}|{file}|{here}|{column}|{name}|{places[:occurrence].count(places[occurrence])}"
                yield hashlib.sha256(told.encode()).hexdigest(), file, line, name, occurrence


def _type_spans(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where types stand, which nothing executes."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            found.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
    return [((x.lineno, x.col_offset), (x.end_lineno or 0, x.end_col_offset or 0)) for x in found if x]


def _difference(old: str, new: str) -> tuple[str, str, range]:
    """The lines that differ, as one line each, and which of the old ones they are."""
    a, b = old.splitlines(), new.splitlines()
    head = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    if len(b) == head + tail:
        # a line that goes, such as a decorator, is named with the one after it
        tail -= 1
    was, becomes = (" ".join(x.strip() for x in part[head : len(part) - tail]) for part in (a, b))
    return was, becomes, range(head + 1, max(len(a) - tail, head + 1) + 1)


def _statement(text: str, lines: range) -> range:
    """Return the lines of the innermost statement around ``lines``; all, of what imports execute."""
    functions, innermost = [], None
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
            if first <= lines[0] and (node.end_lineno or 0) >= lines[-1]:
                functions += [node] if isinstance(node, ast.FunctionDef) else []
                innermost = node
    if not functions or innermost is None:
        return range(1, text.count("\n") + 2)
    body = getattr(innermost, "body", None)
    if innermost is functions[-1]:
        # its decorators and its head
        return range(body[0].lineno, (innermost.end_lineno or 0) + 1)  # type: ignore[index]
    return range(innermost.lineno, body[0].lineno if body else (innermost.end_lineno or 0) + 1)


class Executed:
    """Which test executes which line, and for how long: what `executed.py` wrote."""

    def __init__(self, record: Path) -> None:
        said = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        fixtures = defaultdict(list)
        for each in said:
            if "seconds" not in each:
                fixtures[each["name"]].append(each["lines"])
        self._seconds = {each["name"]: each["seconds"] for each in said if "seconds" in each}
        self._tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for each in said:
            made = [part for name in each.get("fixtures", ()) for part in fixtures[name]]
            for part in (each["lines"], *made) if "seconds" in each else ():
                for file, lines in part.items():
                    for line in lines:
                        self._tests[file][line].add(each["name"])

    def tests(self, mutant: Mutant, limit: float) -> list[list[str]]:
        """Return tests that execute what is changed: the near ones, then the others, ``limit`` seconds each.

        The others are of MOST_FILES files, because reading a file takes as long as many a test of it.
        """
        by_line = self._tests[mutant.file]
        left = set().union(*(by_line[line] for line in mutant.statement if line in by_line))
        module = Path(mutant.file.replace("trafficdp", "tests/unit", 1))
        rings = []
        for near in (f"{module.parent}/test_{module.name}", f"{module.parent}/", ""):
            ring = sorted(
                (test for test in left if test.startswith(near)), key=lambda x: (self._seconds[x], x)
            )
            left -= {*ring}
            total, files, kept = 0.0, set[str](), list[str]()
            for test in ring:
                file = test.split("::")[0]
                total += self._seconds[test]
                if (not kept or total <= limit) and (file in files or len(files) < MOST_FILES):
                    files.add(file)
                    kept.append(test)
            rings.append(kept)
        return [ring for ring in rings if ring]


class First:
    """A plugin of pytest that tells of the first of ``tests`` that fails, or does not end, and is done."""

    def __init__(self, told: int, tests: Sequence[str]) -> None:
        self._told, self._runs = told, ""
        self._place = {test: place for place, test in enumerate(tests) if "::" in test}
        signal.signal(signal.SIGPROF, lambda *_: self.tell(self._runs))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run what is asked for, in that order."""
        if self._place:
            places = (self._place.get(each.nodeid, self._place.get(_name(each.nodeid))) for each in items)
            kept = [(place, each) for place, each in zip(places, items, strict=True) if place is not None]
            items[:] = [each for _, each in sorted(kept, key=lambda pair: pair[0])]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Start the clock of a test."""
        self._runs = nodeid
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell of a file that cannot be read any more."""
        if report.failed:
            self.tell(f"import of {report.nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a test."""
        if report.failed:
            self.tell(report.nodeid)

    def tell(self, what: str) -> None:
        """Say what noticed the mutant, and end."""
        os.write(self._told, _name(what).encode())
        os._exit(0)


def _name(test: str) -> str:
    """Without its parameters."""
    return test.split("[")[0]


def noticed(root: Path, tests: Sequence[str], limit: int) -> str:
    """Return the first of ``tests`` that fails in the tree ``root``, "" if none; run in a forked process.

    ``tests`` are tests, or files of them. After ``limit`` seconds of computing the others are left out.
    """
    if not tests:
        return ""
    said, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(said)
            _run(root, tests, limit, First(told, tests))
        finally:
            # nothing of the parent is unwound here
            os._exit(0)
    os.close(told)
    with os.fdopen(said, "rb") as answer:
        found = answer.read().decode()
    os.waitpid(child, 0)
    try:
        # whatever a test started and left behind
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return found


def _run(root: Path, tests: Sequence[str], limit: int, first: First) -> None:
    os.setsid()
    with open(os.devnull, "r+b") as quiet:
        for stream in (0, 1, 2):
            os.dup2(quiet.fileno(), stream)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    os.chdir(root)
    sys.path[:0] = [str(root)]
    os.environ.update(PYTHONPATH=str(root))
    marks = "not prove and not browser and not real"
    options = ["-q", "-m", marks, "-p", "no:cacheprovider", f"--basetemp={root.parent / 'scratch'}"]
    # a library that is loaded already
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*options, *dict.fromkeys(each.split("::")[0] for each in tests)], plugins=[first])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        first.tell(f"pytest, which ends with {code}")


def examine(tree: Path, mutant: Mutant, rings: Sequence[Sequence[str]], limit: int, age: int) -> str:
    """Return which test of ``rings`` notices the mutant in ``tree``, "" if none does.

    ``age`` is another number for every mutant, so that no compiled file of another one is taken for its.
    """
    path = tree / mutant.file
    sound, stat = path.read_text(encoding="utf-8"), path.stat()
    try:
        path.write_text(mutant.source, encoding="utf-8")
        os.utime(path, (stat.st_mtime, stat.st_mtime + 10 * (age + 1)))
        return next(filter(None, (noticed(tree, ring, limit) for ring in rings)), "")
    finally:
        path.write_text(sound, encoding="utf-8")
        os.utime(path, (stat.st_mtime, stat.st_mtime))


def copied(into: Path) -> Path:
    """Return a copy of the repository in ``into``, without its history and what is made."""
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", "build", "demo", "__pycache__", ".*_cache", ".hypothesis"
    )
    return Path(shutil.copytree(ROOT, into / "tree", ignore=ignored))


def rows(text: str) -> dict[tuple[str, str, str], str]:
    """Return the last column of a table by the key of each mutant."""
    found = {}
    for line in text.splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) == 6 and cells[1].strip().endswith(".py`"):
            file, before, after = (each.strip()[1:-1].replace("\\|", "|") for each in cells[1:4])
            found[file, before, after] = cells[4].strip()
    return found


def table(results: dict[tuple[str, str, str], str], argued: dict[tuple[str, str, str], str]) -> str:
    """Return the page: ``results`` say what noticed each mutant, ``argued`` why the others may survive."""
    lines = []
    for key, found in results.items():
        reason = f"`{found}`" if found else argued.get(key, "").strip("`")
        cells = ["`" + each.replace("|", "\\|") + "`" for each in key]
        lines.append("| " + " | ".join([*cells, reason]) + " |")
    survived = sum(not found for found in results.values())
    head = HEAD.format(
        rooms=", ".join(
            f"{sum(key[0].startswith(f'trafficdp/{room}/') for key in results)} in `{room}`" for room in ROOMS
        ),
        named=len(NAMED),
        killed=len(results) - survived,
        all=len(results),
        survived=survived,
    )
    return head + "\n".join(lines) + "\n"


def standing(root: Path, last: dict[tuple[str, str, str], str]) -> dict[tuple[str, str, str], str]:
    """Return, of the rows of a table, what noticed a mutant and is still there; "" where it is argued."""
    found = {}
    for key, said in last.items():
        named = re.search(r"(tests/\S+?\.py)(?:::(\w+))?", said) if said.startswith("`") else None
        if named is not None:
            path, test = root / named[1], named[2]
            if path.exists() and (test is None or f"def {test}(" in path.read_text(encoding="utf-8")):
                found[key] = said.strip("`")
        elif said.strip("`"):
            found[key] = ""
    return found


def require_sound(tree: Path, tests: Iterable[str], limit: int) -> None:
    """Exit if one of ``tests`` fails in ``tree``, which is as it should be: it would notice nothing."""
    if found := noticed(tree, sorted(tests), limit):
        raise SystemExit(
            f"{found} fails on sound code: what it notices means nothing; mend it, and run again"
        )


def main() -> None:
    """Examine what has no result yet, then write the table."""
    build = ROOT / "build"
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path, default=build / "executed.jsonl", help="executed.py's record")
    parser.add_argument("--results", type=Path, default=build / "mutants.jsonl", help="file to append to")
    parser.add_argument("--into", type=Path, default=TABLE, help="file to write")
    parser.add_argument("--limit", type=int, default=30, help="seconds of tests a ring")
    parser.add_argument("--only", default="", help="only mutants of files whose path contains this")
    parser.add_argument("--anew", action="store_true", help="examine what the table tells of as well")
    parser.add_argument("--ask", nargs="+", default=(), help="show survivors to these files of tests")
    given = parser.parse_args()
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.touch()
    known = [json.loads(line) for line in given.results.read_text(encoding="utf-8").splitlines()]
    argued = rows(given.into.read_text(encoding="utf-8")) if given.into.exists() else {}
    results = {} if given.anew else standing(ROOT, argued)
    asked = dict.fromkeys(results, sys.maxsize)
    results |= {tuple(each["key"]): each["noticed"] for each in known}
    asked |= {tuple(each["key"]): each["asked"] for each in known}
    mutants = list(sample(ROOT))
    sound = {each["sound"] for each in known if each.get("sound")}
    executed = None if given.ask else Executed(given.record)
    left = []
    for mutant in mutants:
        if given.only in mutant.file and not results.get(mutant.key):
            rings = executed.tests(mutant, given.limit) if executed else [given.ask]
            if given.ask or sum(map(len, rings)) > asked.get(mutant.key, -1):
                left.append((mutant, rings))
    # a run that is stopped has seen some of every room
    left.sort(key=lambda pair: hashlib.sha256(repr(pair[0].key).encode()).hexdigest())
    for name in LIBRARIES:
        import_module(name)
    with tempfile.TemporaryDirectory() as scratch:
        tree = copied(Path(scratch))
        require_sound(tree, {each for each in results.values() if "::" in each} - sound, 100 * given.limit)
        for age, (mutant, rings) in enumerate(left):
            many = sum(map(len, rings))
            found = results[mutant.key] = examine(tree, mutant, rings, 4 * given.limit, age)
            if "::" in found and found not in sound:
                require_sound(tree, {found}, 4 * given.limit)
                sound.add(found)
            line = {"key": mutant.key, "noticed": found, "asked": many, "sound": found * (found in sound)}
            with given.results.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            said = found or f"SURVIVES {many} tests: {mutant.after}"
            print(f"{age + 1}/{len(left)} {mutant.file}: {said}", flush=True)
    given.into.parent.mkdir(parents=True, exist_ok=True)
    done = {each.key: results[each.key] for each in mutants if each.key in results}
    given.into.write_text(table(done, argued), encoding="utf-8")
    print(f"wrote {given.into}: {len(done)} mutants")


if __name__ == "__main__":
    main()
