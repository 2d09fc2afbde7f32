"""The recipe of the table of mutants still finds what it should."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("mutants_script", ROOT / "pipelines" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_table_is_read_as_it_was_written(script):
    key = ("trafficdp/a.py", "x = y | z", "x = y & z")
    other = ("trafficdp/b.py", "`a`", "b")
    page = script.table({key: "", other: "tests/t.py::test"}, {key: "both are the same number"})
    assert script.rows(page) == {key: "both are the same number", other: "`tests/t.py::test`"}
    assert script.table({key: "", other: "tests/t.py::test"}, script.rows(page)) == page


def test_a_row_stands_while_its_test_does(script):
    here = "tests/pipelines/test_mutants.py"
    said = {
        "seen": f"`{here}::test_a_row_stands_while_its_test_does`",
        "unreadable": f"`import of {here}`",
        "renamed": f"`{here}::test_that_is_{'gone'}`",
        "moved": "`tests/pipelines/nowhere.py::test_a_row_stands_while_its_test_does`",
        "argued": "the same number",
        "open": "``",
    }
    last = {("f.py", name, "y"): each for name, each in said.items()}
    found = {key[1]: each for key, each in script.standing(ROOT, last).items()}
    assert found == {"seen": said["seen"].strip("`"), "unreadable": f"import of {here}", "argued": ""}


def test_the_seed_picks_lines_that_are_executed_and_still_read_as_python(script):
    picked = list(script.sample(ROOT, ("stream",), 4))
    named, sampled = picked[: len(script.NAMED)], picked[len(script.NAMED) :]
    assert [each.key for each in script.sample(ROOT, ("stream",), 4)] == [each.key for each in picked]
    assert len({each.key for each in picked}) == len(picked)
    assert len(sampled) == 4
    for each in (*named, *sampled):
        sound = (ROOT / each.file).read_text(encoding="utf-8")
        assert each.source != sound
        assert ast.dump(ast.parse(each.source)) != ast.dump(ast.parse(sound))


TEXT = """import x

@cached
def one(a):
    y = (
        a + 1
    )
    if y:
        return 2
    return 3

LIMIT = 4
"""


@pytest.mark.parametrize(
    ("line", "statement"),
    [(6, range(5, 8)), (8, range(8, 9)), (9, range(9, 10)), (3, range(5, 11)), (12, range(1, 14))],
)
def test_a_change_belongs_to_the_innermost_statement_around_it(script, line, statement):
    assert script._statement(TEXT, range(line, line + 1)) == statement


def test_tests_that_execute_the_line_are_asked_its_own_first_then_the_shortest(script, tmp_path):
    def said(name, seconds, *lines, **more):
        return json.dumps({"name": name, "lines": {"trafficdp/a/b.py": lines}, "seconds": seconds} | more)

    record = tmp_path / "executed.jsonl"
    city = {"name": "fixture city of tests", "lines": {"trafficdp/a/b.py": [7]}}
    own, near, far, slow = (
        f"tests/{name}.py::test" for name in ("unit/a/test_b", "unit/a/test_c", "golden/test_d", "sql/test_e")
    )
    lines = [
        said(slow, 50, 7),
        said(far, 1, 8, fixtures=["fixture city of tests"]),
        said(near, 2, 7),
        said(own, 9, 6, 7),
        said(f"{own}_other", 1, 8),
    ]
    record.write_text("\n".join([json.dumps(city), *lines]) + "\n", encoding="utf-8")
    mutant = script.Mutant("trafficdp/a/b.py", "x", "y", "", range(7, 8))
    assert script.Executed(record).tests(mutant, 60) == [[own], [near], [far, slow]]
    assert script.Executed(record).tests(mutant, 5) == [[own], [near], [far]]
    nobody = script.Mutant("trafficdp/a/b.py", "x", "y", "", range(9, 10))
    assert script.Executed(record).tests(nobody, 60) == []


def test_what_a_test_executes_is_recorded_with_the_fixtures_that_it_shares(tmp_path):
    """In a process of its own, for what is imported before is not seen."""
    record = tmp_path / "executed.jsonl"
    asked = ["-q", "-p", "no:cacheprovider", "tests/unit/model/test_grid.py"]
    done = subprocess.run(
        [sys.executable, "pipelines/executed.py", str(record), *asked],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    said = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    tests = [each for each in said if "seconds" in each]
    assert tests
    assert all(each["name"].startswith("tests/unit/model/test_grid.py::test_") for each in tests)
    assert any("trafficdp/model/grid.py" in each["lines"] for each in tests)


@pytest.mark.slow
def test_a_mistake_is_noticed_by_name_and_sound_code_is_not():
    """In a process of its own: what is examined must not be imported before."""
    code = """
import sys, tempfile
from dataclasses import replace
from pathlib import Path
import mutants
with tempfile.TemporaryDirectory() as scratch:
    tree = mutants.copied(Path(scratch))
    (wrong,) = [each for each in mutants.sample(tree, ()) if each.file.endswith("per_statistic/clipping.py")]
    sound = (tree / wrong.file).read_text(encoding="utf-8")
    for age, source in enumerate((wrong.source, sound, sound + " def")):
        rings = [["tests/unit/mechanisms/clipping/test_akmv.py"]]
        print(mutants.examine(tree, replace(wrong, source=source), rings, 100, age))
    mutants.require_sound(tree, {rings[0][0]}, 100)
    (tree / wrong.file).write_text(wrong.source, encoding="utf-8")
    try:
        mutants.require_sound(tree, {rings[0][0]}, 100)
    except SystemExit as refused:
        print(refused)
    (tree / wrong.file).write_text(sound, encoding="utf-8")
    assert (tree / wrong.file).read_text(encoding="utf-8") == sound
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "pipelines", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    noticed, sound, unreadable, refused = done.stdout.splitlines()
    # a test that fails on the code as it is notices nothing
    assert refused.startswith(f"{noticed} fails on sound code")
    assert noticed.startswith("tests/unit/mechanisms/clipping/test_akmv.py::test_")
    assert (sound, unreadable) == ("", "import of tests/unit/mechanisms/clipping/test_akmv.py")
