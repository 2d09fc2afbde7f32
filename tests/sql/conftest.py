"""A small city with a store, and the means to look into it. The twin of this file: tests/unit/conftest.py."""

import importlib.util
import shutil
from pathlib import Path

import pytest


def _small_city():
    path = Path(__file__).parents[1] / "small_city.py"
    spec = importlib.util.spec_from_file_location("small_city", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def small_city():
    """The module: plates, days, ``City``, ``logical_dump``."""
    return _small_city()


@pytest.fixture
def city(small_city, tmp_path):
    """A city whose store does not exist yet."""
    return small_city.City(tmp_path / "city")


@pytest.fixture(scope="session")
def _filled(small_city, tmp_path_factory):
    made = small_city.City(tmp_path_factory.mktemp("template") / "city")
    made.open().ingest([made.days[1]])
    return made.folder


@pytest.fixture(scope="session")
def _released(small_city, tmp_path_factory, _filled):
    made = small_city.at(_copied(_filled, tmp_path_factory.mktemp("released") / "city"))
    made.open().release()
    return made.folder


def _copied(source, target):
    shutil.copytree(source, target)
    return target


@pytest.fixture
def filled(small_city, tmp_path, _filled):
    """A city with the first day in its store."""
    return small_city.at(_copied(_filled, tmp_path / "filled"))


@pytest.fixture
def released(small_city, tmp_path, _released):
    """The same with one release, r0001."""
    return small_city.at(_copied(_released, tmp_path / "released"))
