"""Every notebook runs from top to bottom, and what is committed was run."""

import ast
import json
import re
from pathlib import Path

import nbformat
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
        "folder = tempfile.TemporaryDirectory()": "folder = tempfile.TemporaryDirectory()\n"
        "import trafficdp.mechanisms.simulated.trial\ntrafficdp.mechanisms.simulated.trial.ESTIMATES = 40",
        "np.geomspace(0.5, 64, 8)": "np.geomspace(0.5, 64, 2)",
    },
    "papers/aumuller_2023.ipynb": {
        "(128, rho, 0.0, 5)": "(128, rho, 0.0, 1)",
        "{16: 12, 64: 8, 128: 4, 256: 2}": "{16: 1, 64: 1}",
        "{16: 9, 32: 9, 128: 3}": "{16: 1, 32: 1}",
        "[(512, 0.25, a, 1) for a in (0.5, 2.0)]": "[(64, 0.25, a, 1) for a in (0.5, 2.0)]",
        "range(5)": "range(1)",
        "range(3)": "range(1)",
        "for rho in (0.125, 0.25, 0.5, 1.0)": "for rho in (0.125, 0.5)",
        "shares = (0.0, 0.25, 0.5, 0.75, 1.0)": "shares = (0.0, 1.0)",
    },
    "papers/george_2022.ipynb": {
        "USERS, SAMPLES, STEPS, EPSILON, FAILURE, DELTA, RUNS = 1_000": "USERS, SAMPLES, STEPS, EPSILON, "
        "FAILURE, DELTA, RUNS = 100",
        '"0.000001", 8': '"0.000001", 1',
        "n = 5_000": "n = 500",
        "range(2, 17)": "range(2, 10)",
    },
    "papers/rameshwar_2024_iot.ipynb": {"RUNS = 1_000": "RUNS = 20"},
    "papers/rameshwar_2025.ipynb": {"RUNS = 1_500": "RUNS = 50"},
    "papers/zhao_2024.ipynb": {
        "REPEATS = 30": "REPEATS = 2",
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
RUNS = [
    *((name, FEWER.get(name, {})) for name in NOTEBOOKS),
    *(pytest.param(name, {}, marks=pytest.mark.prove(minutes=7)) for name in FEWER),
]


def _read(name):
    return nbformat.read(FOLDER / name, as_version=4)


def _outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_there_is_a_tour():
    assert "1_tour.ipynb" in NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize(("name", "smaller"), RUNS)
def test_the_notebook_runs_from_any_folder_without_error_or_warning(name, smaller, tmp_path):
    notebook = _read(name)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in smaller.items():
        assert any(old in cell.source for cell in code), old
        for cell in code:
            cell.source = cell.source.replace(old, new)
    for cell in code:
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
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = _outputs(notebook)
    assert all(output.output_type != "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("name", ["1_tour", "2_choose_a_mechanism", "3_analyst", "scale"])
def test_who_uses_the_tool_needs_public_names_alone(name):
    code = "\n".join(cell.source for cell in _read(f"{name}.ipynb").cells if cell.cell_type == "code")
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
