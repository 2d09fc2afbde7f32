"""Every notebook runs from top to bottom, and what is committed was run."""

import ast
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

import trafficdp

FOLDER = Path(trafficdp.__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(
    path.relative_to(FOLDER).as_posix()
    for path in FOLDER.rglob("*.ipynb")
    if ".ipynb_checkpoints" not in path.parts
)
LARGEST = 400_000
FEWER = {
    "2_choose_a_mechanism.ipynb": {
        "np.geomspace(0.5, 64, 8)": "np.geomspace(0.5, 64, 1)",
    },
    "papers/aumuller_2023.ipynb": {
        "n, mean = (4_000, 0.0)": "n, mean = (400, 0.0)",
        "else (10_000, 10.0)": "else (1_000, 10.0)",
        "(128, rho, 0.0, 5)": "(128, rho, 0.0, 1)",
        "{16: 12, 64: 8, 128: 4, 256: 2}": "{16: 1, 64: 1}",
        "{16: 9, 32: 9, 128: 3}": "{16: 1, 32: 1}",
        "[(512, 0.25, a, 1) for a in (0.5, 2.0)]": "[(64, 0.25, a, 1) for a in (0.5, 2.0)]",
        "range(5)": "range(1)",
        "range(3)": "range(1)",
        "for rho in (0.125, 0.25, 0.5, 1.0)": "for rho in (0.125, 0.5)",
        "random.random((4_096, 256))": "random.random((409, 256))",
        "shares = (0.0, 0.25, 0.5, 0.75, 1.0)": "shares = (0.0, 1.0)",
    },
    "papers/george_2022.ipynb": {
        "RUNS = 1_000, 64": "RUNS = 100, 16",
        "1_024": "128",
        "range(2, 8)": "range(2, 6)",
        "(1_000, 100_000)": "(1_000, 10_000)",
        '"0.000001", 8': '"0.000001", 1',
        "n = 5_000": "n = 500",
        "range(2, 17)": "range(2, 10)",
    },
    "papers/rameshwar_2024_iot.ipynb": {"RUNS = 1_000": "RUNS = 20"},
    "papers/rameshwar_2025.ipynb": {"RUNS = 1_500": "RUNS = 50"},
    "papers/zhao_2024.ipynb": {
        "REPEATS = 30": "REPEATS = 2",
        "MULTIPLES = (1.0, 2.0, 3.0, 4.0)": "MULTIPLES = (1.0, 4.0)",
        "for n in (60, 125, 200, 400, 800)": "for n in (60, 125)",
        "for n in (125, 200, 400, 800)": "for n in (125, 200)",
        "(30, 20_000, 40)": "(30, 20_000, 4)",
        "for threshold in (2.0, 4.0, 10.0, 20.0)": "for threshold in (2.0, 20.0)",
        "25, 800, 300": "25, 80, 30",
        "dimensions = (2, 3, 4, 6, 8)": "dimensions = (2, 3)",
        "for epsilon in (0.5, 1.0, 2.0, 4.0)": "for epsilon in (4.0,)",
    },
}
"""Constants of the notebooks that take long, and small ones for them, by which every cell still runs."""
CHEAP = "test_every_cell_runs_from_any_folder_without_error_or_warning"


def _read(name):
    return nbformat.read(FOLDER / name, as_version=4)


def _outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_there_is_a_tour():
    assert "1_tour.ipynb" in NOTEBOOKS


def _code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _run(source, names):
    """Run a cell, and show its last value as a notebook does."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if last:
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        getattr(shown, "_repr_html_", shown.__repr__)()


@pytest.fixture
def drawn(monkeypatch):
    """How many figures were drawn so far: ``plt.show`` draws and closes all that are open."""
    found = []

    def show():
        for number in plt.get_fignums():
            plt.figure(number).canvas.draw()
            found.append(number)
        plt.close("all")

    monkeypatch.setattr(plt, "show", show)
    with plt.rc_context({"backend": "agg"}), pd.option_context("display.max_colwidth", 50):
        plt.switch_backend("agg")
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_cell_runs_from_any_folder_without_error_or_warning(
    name, drawn, tmp_path, monkeypatch, capsys, few_runs, two_cities
):
    """Here and with fewer runs; warnings are errors."""
    code = [cell.source for cell in _code(_read(name))]
    for old, new in FEWER.get(name, {}).items():
        assert any(old in source for source in code), old
        code = [source.replace(old, new) for source in code]
    monkeypatch.chdir(tmp_path)
    names = {}
    for source in code:
        _run(source, names)
        plt.show()
    assert drawn
    assert capsys.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.prove(cheap=CHEAP, minutes=7 if name in FEWER else 1))
        for name in NOTEBOOKS
    ],
)
def test_the_whole_notebook_runs_without_error_or_warning(name, tmp_path):
    notebook = _read(name)
    for cell in _code(notebook):
        cell.outputs, cell.execution_count = [], None
    # raises CellExecutionError when a cell fails
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = _outputs(notebook)
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_committed_notebook_was_run_in_order_and_shows_its_plots(name):
    notebook = _read(name)
    nbformat.validate(notebook)
    assert [cell.execution_count for cell in _code(notebook)] == list(range(1, len(_code(notebook)) + 1))
    outputs = _outputs(notebook)
    assert all(output.output_type != "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("name", ["1_tour", "2_choose_a_mechanism", "3_analyst", "scale"])
def test_who_uses_the_tool_needs_public_names_alone(name):
    code = "\n".join(cell.source for cell in _code(_read(f"{name}.ipynb")))
    taken = {
        module
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in (
            [node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        )
    }
    assert {each for each in taken if each.startswith("trafficdp")} <= {"trafficdp", "trafficdp.errors"}
    assert not re.search(r"\._[a-z]", code)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_committed_notebook_is_small_and_tells_nothing_of_the_machine(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    assert "execution" not in json.dumps([cell.metadata for cell in _read(name).cells])
    assert str(Path.home()) not in text
    assert str(FOLDER.parent) not in text
