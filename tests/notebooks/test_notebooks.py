"""Every notebook runs from top to bottom, and what is committed was run."""

import json
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


def _read(name):
    return nbformat.read(FOLDER / name, as_version=4)


def _outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_there_is_a_tour():
    assert "1_tour.ipynb" in NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs_from_any_folder_without_error_or_warning(name, tmp_path):
    notebook = _read(name)
    for cell in notebook.cells:
        if cell.cell_type == "code":
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


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_committed_notebook_is_small_and_tells_nothing_of_the_machine(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    assert "execution" not in json.dumps([cell.metadata for cell in _read(name).cells])
    assert str(Path.home()) not in text
    assert str(FOLDER.parent) not in text
