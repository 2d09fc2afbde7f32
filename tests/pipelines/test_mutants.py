"""The recipe of the table of mutants still finds what it should."""

import ast
import importlib.util
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
    (wrong,) = [each for each in mutants.sample(tree, ()) if each.file.endswith("akmv.py")]
    sound = (tree / wrong.file).read_text(encoding="utf-8")
    for age, source in enumerate((wrong.source, sound, sound + " def")):
        print(mutants.examine(tree, replace(wrong, source=source), slice(0, 1), 100, age))
    assert (tree / wrong.file).read_text(encoding="utf-8") == sound
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "pipelines", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    noticed, sound, unreadable = done.stdout.splitlines()
    assert noticed.startswith("tests/unit/mechanisms/clipping/test_akmv.py::test_")
    assert (sound, unreadable) == ("", "import of tests/unit/mechanisms/clipping/test_akmv.py")
