"""What the wheel holds, and what an install of it is made of."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
INSTALLS = ROOT / "data" / "installs"
PERMISSIVE = {
    *("MIT", "MIT-CMU", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "Zlib", "CC0-1.0"),
    *("Apache-2.0", "MPL-2.0", "PSF-2.0", "Python-2.0"),
    *(f"License :: OSI Approved :: {each}" for each in ("BSD License", "Apache Software License")),
}
UNSTATED = {"protobuf": "BSD-3-Clause"}
"""Packages whose metadata name no licence, and the one that their repository holds."""
PARTS = "trafficdp", "data/sample", "setup.py", "pyproject.toml", "LICENSE", "README.md"
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def built(folder):
    """The wheel of what lies here, as bytes."""
    sources = folder / "sources"
    for name in PARTS:
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, sources / name)
        else:
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(folder)],
        cwd=sources,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = folder.glob("*.whl")
    return wheel.read_bytes()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_the_sample_city(wheel):
    held = set(zipfile.ZipFile(io.BytesIO(wheel)).namelist())
    package = {
        each.relative_to(ROOT).as_posix()
        for each in (ROOT / "trafficdp").rglob("*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    sample = {f"trafficdp/sample/{each.name}" for each in (ROOT / "data" / "sample").iterdir()}
    assert len(sample) == 9
    assert (package | sample) - held == set()
    assert all(each.startswith(("trafficdp/", "trafficdp-")) for each in held)


@pytest.mark.slow
def test_two_wheels_of_the_same_files_are_the_same_bytes(wheel, tmp_path):
    assert built(tmp_path) == wheel


@pytest.mark.slow
def test_the_wheel_works_without_the_source_tree(wheel, tmp_path):
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    look = "import trafficdp.cli.main as here; print(here.__file__); here.main()"
    done = subprocess.run(
        [sys.executable, "-c", look, "--quiet", "demo"],
        cwd=tmp_path / "empty",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "site"))
    assert (tmp_path / "empty" / "demo" / "city.store" / "releases" / "r0001" / "map.html").is_file()


@pytest.fixture(scope="module")
def dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(each) for each in project["dependencies"]]


def name_of(text):
    return text.lower().replace("_", "-").replace(".", "-")


def test_the_requirements_with_hashes_are_those_of_the_project(dependencies):
    text = (INSTALLS / "requirements.txt").read_text(encoding="utf-8")
    assert "http" not in text
    pins = re.findall(
        r"^([A-Za-z0-9._-]+)==(\S+)[^\n]* \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE
    )
    assert len(pins) == len(re.findall("^[a-z]", text, re.MULTILINE)) > 40
    for each in dependencies:
        found = [version for name, version in pins if name_of(name) == name_of(each.name)]
        assert found, each.name
        assert all(each.specifier.contains(version) for version in found), each


def test_every_package_of_an_install_may_be_used_and_passed_on(dependencies):
    text = (INSTALLS / "sbom.json").read_text(encoding="utf-8")
    assert "file:" not in text
    components = json.loads(text)["components"]
    licences = {
        name_of(each["name"]): [
            held.get("expression") or held["license"].get("id") or held["license"].get("name")
            for held in each.get("licenses", [])
        ]
        for each in components
    }
    assert {name_of(each.name) for each in dependencies} <= licences.keys()
    assert {name for name, held in licences.items() if not held} == UNSTATED.keys()
    for name, held in licences.items():
        choices = [
            choice.split(" AND ") for each in held or [UNSTATED[name]] for choice in each.split(" OR ")
        ]
        assert any(set(choice) <= PERMISSIVE for choice in choices), (name, held)


def test_every_python_that_is_supported_runs_every_command():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = [each.rsplit(" ", 1)[-1] for each in project["classifiers"] if "Python :: 3." in each]
    rows = [
        line.strip("| ").split(" | ")
        for line in (INSTALLS / "table.md").read_text(encoding="utf-8").splitlines()
    ]
    ran = [(python, which) for python, which, *_, outcome in rows if outcome == "every command runs"]
    assert ran == [(python, which) for python in supported for which in ("oldest", "newest")]
