"""The walls that design and pyproject.toml draw stand, and would be seen to fall."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "trafficdp"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BANNED = SETTINGS["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
CONTRACTS = SETTINGS["tool"]["importlinter"]["contracts"]
MODULES = sorted(PACKAGE.rglob("*.py"))
PUBLIC = [PACKAGE / "model"]
"""Rooms whose nouns are imported from the room; of any other, from their file."""
STANDING_ON_MODEL = {"privacy", "sensitive.py", "bounding", "binning", "measurement", "noise"}
"""They name the files of the room, so that who reads the guarantee sees all that it stands on."""
LINES = 600
"""Hard ceiling of a file: one thought is read whole. The soft one is 300."""


@cache
def nodes(path):
    """All nodes of the module at ``path``, itself first."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def run(*command, folder=ROOT):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def checks():
    """The commands of `make check`, each as a list of words without the folder of its tool."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = re.search(r"(?m)^check:.*\n((?:\t.*\n)+)", makefile).group(1).splitlines()
    return [line.strip().removeprefix("$(RUN)/").split() for line in lines]


def lint_imports(folder):
    code = "from importlinter.cli import lint_imports_command as command; command()"
    return run(sys.executable, "-c", code, "--no-cache", folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("check", checks(), ids=" ".join)
def test_what_make_check_looks_at_is_sound(check):
    name, *arguments = check
    result = run(Path(sys.executable).with_name(name), *arguments)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_an_import_that_points_up_is_seen(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "trafficdp", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    planted = {
        "model.speed": "mechanisms.laplace.accountings",
        "privacy.loss": "sensitive",
        "knowledge.timetable": "store.store_files",
        "noise.tail": "bounding.worst_case",
        "errors": "_durable",
    }
    for importer, imported in planted.items():
        target = tmp_path / "trafficdp" / f"{importer.replace('.', '/')}.py"
        with target.open("a", encoding="utf-8") as file:
            file.write(f"\nimport trafficdp.{imported}\n")
    result = lint_imports(tmp_path)
    assert result.returncode != 0
    for importer, imported in planted.items():
        assert f"trafficdp.{importer} -> trafficdp.{imported} (l." in " ".join(result.stdout.split()), (
            importer
        )


@pytest.fixture(scope="module")
def ruff():
    found = shutil.which("ruff") or Path(sys.executable).with_name("ruff")
    return str(found)


def banned_imports(ruff, path, text):
    """What ruff says of ``text`` if it stood at ``path``, by the project's own settings."""
    command = [ruff, "check", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    command += ["--select", "TID251,T201", "--output-format", "concise", "--stdin-filename", str(ROOT / path)]
    result = subprocess.run([*command, "-"], cwd=ROOT, input=text, capture_output=True, text=True, timeout=60)
    assert result.returncode in (0, 1), result.stderr
    return re.findall(r"TID251|T201", result.stdout)


@pytest.mark.parametrize("name", sorted(BANNED))
def test_a_banned_import_is_seen_where_it_does_not_belong(ruff, name):
    for statement in (f"import {name}", f"from {name} import anything"):
        assert "TID251" in banned_imports(ruff, "trafficdp/planner/planted.py", f"{statement}\n"), statement


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("trafficdp/store/planted.py", "duckdb"),
        ("trafficdp/knowledge/planted.py", "duckdb"),
        ("trafficdp/engine/duckdb_planted.py", "duckdb"),
        ("trafficdp/engine/spark_planted.py", "pyspark"),
        ("trafficdp/binning/cells.py", "h3"),
        ("trafficdp/noise/planted.py", "opendp"),
        ("trafficdp/noise/planted.py", "numpy.random"),
        ("trafficdp/cli/planted.py", "typer"),
    ],
)
def test_a_banned_import_is_allowed_in_its_own_room(ruff, path, name):
    assert banned_imports(ruff, path, f"import {name}\n") == []


def test_printing_is_seen_outside_the_command_line(ruff):
    assert banned_imports(ruff, "trafficdp/planner/planted.py", "print(1)\n") == ["T201"]
    assert banned_imports(ruff, "trafficdp/cli/planted.py", "print(1)\n") == []


def test_every_room_is_a_package_whose_init_says_what_is_in_it_and_nothing_else():
    rooms = {path.parent for path in MODULES} - {PACKAGE}
    for room in sorted(rooms):
        init = room / "__init__.py"
        assert init.exists(), room
        doc, *body = ast.parse(init.read_text(encoding="utf-8")).body
        assert isinstance(doc, ast.Expr), init
        if room in PUBLIC:
            # what is in it, handed on
            assert all(isinstance(each, ast.ImportFrom) for each in body), init
        else:
            assert not body, init


@pytest.mark.parametrize("room", PUBLIC, ids=lambda room: room.name)
def test_what_is_in_a_public_room_is_imported_from_the_room(room):
    name = f"trafficdp.{room.name}"
    files = {path.stem for path in room.glob("*.py")}
    for path in MODULES:
        if room not in path.parents:
            text = path.read_text(encoding="utf-8")
            if path.relative_to(PACKAGE).parts[0] in STANDING_ON_MODEL:
                assert {*re.findall(rf"from {name} import (\w+)", text)} <= files, path
            else:
                assert f"from {name}." not in text, path


def test_every_room_has_its_place_in_the_layers():
    layers = next(each for each in CONTRACTS if each["type"] == "layers")
    placed = {name.strip() for layer in layers["layers"] for name in re.split("[|:]", layer)}
    rooms = {path for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    # the package itself and `python -m trafficdp` stand above all
    assert placed == {f"trafficdp.{path.stem}" for path in rooms if path.stem not in ("__init__", "__main__")}


def test_no_file_grows_past_the_ceiling():
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {path: number for path, number in lines.items() if number > LINES} == {}


def test_no_room_and_no_file_is_a_drawer_for_anything():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in MODULES if drawers & {*path.parts, path.stem}]


def test_nothing_is_validated_by_assert():
    for path in MODULES:
        assert not re.search(r"^\s*assert\b", path.read_text(encoding="utf-8"), re.MULTILINE), path


def test_a_docstring_says_what_it_does_and_not_only_where_else_it_is_said():
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                assert not (ast.get_docstring(node) or "").startswith("See "), (path, node.name)


def test_only_the_noise_room_draws():
    for path in MODULES:
        if path.parent.name != "noise":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\brandom\.(default_rng|random|normal|laplace|integers)\(", text), path


def test_the_hooks_before_a_commit_are_the_checks_of_make_check():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    # nothing is fetched
    assert [each["repo"] for each in hooks] == ["local"]
    assert [hook["entry"].split() for hook in hooks[0]["hooks"]] == [
        [f".venv/bin/{name}", *arguments] for name, *arguments in checks()
    ]
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in hooks[0]["hooks"])


FILES = "csv", "geojson", "html", "json", "jsonld", "md", "sql", "store", "toml"
"""What names of files end with, in prose, that are no modules."""


def names_that_are_not_there(text):
    """What ``text`` says of modules, rooms and classes, as ``file.name``, that nobody defines."""
    said = (each.split(".") for each in re.findall(r"``((?:\w+\.)+\w+)``", text))
    pairs = [pair for each in said if each[-1] not in FILES for pair in pairwise(each)]
    there = defined()
    return [".".join(pair) for pair in pairs if pair[0] in there and pair[1] not in there[pair[0]]]


@cache
def defined():
    """What every module, room and class defines, by its name."""
    found = {"datetime": {"astimezone"}, "papers": set()}
    for path in MODULES:
        *rooms, file = path.relative_to(PACKAGE).with_suffix("").parts
        _, *below = nodes(path)
        names = {name for node in below for name in named(node)}
        for name in (*rooms, file):
            found.setdefault(name, set()).update(names, [*rooms, file])
        for holder in below:
            if isinstance(holder, ast.ClassDef):
                names = {name for node in ast.walk(holder) for name in named(node)}
                found.setdefault(holder.name, set()).update(names)
    return found


def named(node):
    """The names that ``node`` defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.id if isinstance(node, ast.Name) else node.attr]
    return []


@pytest.mark.slow
def test_names_that_prose_says_are_there():
    found = {path: names_that_are_not_there(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_name_that_is_not_there_is_seen():
    assert names_that_are_not_there("``posterior.known_centre``, ``Grid.area``, ``site.json``") == []
    assert names_that_are_not_there("``posterior.no_such_name``") == ["posterior.no_such_name"]
    assert names_that_are_not_there("``pooling.no_such_file.name``") == ["pooling.no_such_file"]


def test_no_two_classes_have_one_name():
    names = [node.name for module in MODULES for node in nodes(module) if isinstance(node, ast.ClassDef)]
    assert sorted({name for name in names if names.count(name) > 1}) == []
