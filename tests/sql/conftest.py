"""A released store that analysts ask, and what it takes to see whether a single byte changed."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from trafficdp.store.analyst import AnalystSession
from trafficdp.store.store_files import RELEASED_NAME
from trafficdp.store.vault import VAULT_NAME

SECONDS = 3.0


def fingerprint(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Place:
    """A released store in a folder, which is the current one, and what was in it at first."""

    def __init__(self, city, folder):
        self.store = city.store
        self.folder = folder
        self.released = city.store / RELEASED_NAME
        self.before = fingerprint(folder)

    def filled_in(self, text):
        names = {
            "vault": self.store / VAULT_NAME,
            "key": self.store.with_name(self.store.name + ".key"),
            "released": self.released,
            "store": self.store,
            "folder": self.folder,
        }
        for name, path in names.items():
            text = text.replace(f"@{name}", str(path))
        return text

    def is_untouched(self):
        return fingerprint(self.folder) == self.before


@pytest.fixture(scope="module")
def place(small_city, tmp_path_factory, _released):
    """Where analysts ask: the working directory while the tests of one file run."""
    folder = tmp_path_factory.mktemp("escape")
    city = small_city.at(Path(shutil.copytree(_released, folder / "city")))
    before = Path.cwd()
    os.chdir(folder)
    made = Place(city, folder)
    assert any(name.endswith(VAULT_NAME) for name in made.before)
    yield made
    os.chdir(before)


@pytest.fixture(scope="module")
def session(place):
    """A session that answers within three seconds, or not at all."""
    with AnalystSession(place.released, timeout=SECONDS) as opened:
        yield opened
