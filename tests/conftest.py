"""Small cities: from plain tables for the privacy core, and one with a store to look into."""

import gc
import hashlib
import importlib
import os
import shutil
import threading
import zlib
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
import searching
import small_city

from trafficdp.mechanisms import simulated_cities
from trafficdp.model import ContributionBound, Counts, SpeedUnit
from trafficdp.sensitive import Contributions
from trafficdp.store import analyst

# no verdict hangs on the machine's speed
for profile, number in searching.EXAMPLES.items():
    hypothesis.settings.register_profile(
        profile,
        deadline=None,
        max_examples=number,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("trafficdp")
# until all tests are found: what is imported and collected stays
gc.disable()
small_city.wait_for_no_disk()

COLLECTED = pytest.StashKey()
SECONDS = 10
"""Of a test marked prove that does not say its minutes: they take 7 on average."""


def pytest_addoption(parser):
    parser.addoption("--minutes", type=int, help="of the tests marked prove, run so many minutes' worth")
    parser.addoption("--pick", default="", help="what picks them: the same text picks the same tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    config.stash[COLLECTED] = tuple(items)
    for item in items:
        if "_templates" in item.fixturenames or {"small_city", "tmp_path"} <= {*item.fixturenames}:
            item.add_marker("store")
    left, pick = config.getoption("minutes"), config.getoption("pick")
    proofs = [item for item in items if _is_proof(item)] if left is not None else []
    proofs.sort(key=lambda item: zlib.crc32(f"{pick} {item.nodeid}".encode()))
    left_out = []
    seconds = 60 * (left or 0)
    for item in proofs:
        marker = item.get_closest_marker("prove")
        told = marker and marker.kwargs.get("minutes")
        takes = SECONDS if told is None else 60 * told
        if takes > seconds:
            left_out.append(item)
        else:
            seconds -= takes
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_proof(item):
    """Whether `make prove` runs it: a long proof, or a test of any input, with more examples."""
    return item.get_closest_marker("prove") or getattr(
        getattr(item, "obj", None), "is_hypothesis_test", False
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Leave what is there by now alone: it is no garbage, and a forked child would copy what is looked at.

    What tests leave is looked for less often than after every 700 objects: that took a thirtieth of the time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def collected(request):
    """Every test that was found, those that are not asked for included."""
    return request.config.stash[COLLECTED]


def _counts(table):
    counts = np.asarray(table, dtype=np.int64)
    counts = counts[counts.sum(axis=1) > 0]
    bins, users = np.nonzero(counts)
    return Counts(
        cell=np.arange(1, len(counts) + 1, dtype=np.uint64),
        slot=np.zeros(len(counts), dtype=np.int64),
        users_per_bin=np.count_nonzero(counts, axis=1),
        user_index=users.astype(np.int64),
        count=counts[bins, users],
        users=counts.shape[1],
    )


def _contributions(values, bound):
    counts = _counts([[len(of_user) for of_user in of_bin] for of_bin in values])
    pairs = [of_user for of_bin in values for of_user in of_bin if len(of_user)]
    return Contributions(
        counts=counts,
        total=np.array([sum(pair) for pair in pairs], dtype=np.int64),
        total_of_squares=np.array([sum(x * x for x in pair) for pair in pairs], dtype=np.int64),
        vehicle=np.arange(1, counts.users + 1, dtype=np.int64),
        bound=bound,
    )


@pytest.fixture(scope="session")
def counts_of():
    """``counts_of(table)``: counts with one row a bin and one column a vehicle; empty bins go."""
    return _counts


@pytest.fixture(scope="session")
def contributions_of():
    """``contributions_of(values, bound)``: ``values[bin][vehicle]`` is a list of speeds in whole steps."""
    return _contributions


@pytest.fixture(scope="session")
def bound_of():
    """``bound_of(upper, step)``: a bound in km/h, from texts or integers."""

    def build(upper, step=1):
        return ContributionBound(Fraction(upper), Fraction(step), SpeedUnit.KILOMETRES_PER_HOUR)

    return build


@pytest.fixture
def few_runs(monkeypatch):
    """Few runs in simulated cities, for claims that hold for any number of them."""
    monkeypatch.setattr(simulated_cities, "ESTIMATES", 40)
    monkeypatch.setattr(simulated_cities, "MOST_DRAWS", 1)


@pytest.fixture
def two_cities(monkeypatch, small_city):
    """Every map is tried once, in two simulated cities, for claims that hold for any number of them."""
    small_city.try_maps_once(monkeypatch.setattr)


@pytest.fixture
def tables_alone(monkeypatch):
    """Releases are written as those of a million bins are: no page and no text, for claims about charges."""
    monkeypatch.setattr("trafficdp.export.write.MOST_BINS_OF_TEXT", 0)


@pytest.fixture(scope="session")
def _workers():
    kept = {}
    yield kept
    for worker in kept.values():
        worker.end()


@pytest.fixture
def shared_workers(monkeypatch, _workers):
    """Sessions that look into files of the same bytes share their process, which takes long to start.

    What a process of its own is good for: tests/unit/store/test_analyst.py and tests/sql. Threads and
    children that a test starts have processes of their own.
    """
    alone, ended = analyst.AnalystSession._started, analyst.AnalystSession.close
    here = os.getpid()

    def elsewhere():
        return threading.current_thread() is not threading.main_thread() or os.getpid() != here

    def started(session):
        if elsewhere():
            return alone(session)
        files = {None: session.path, **session._files}
        read = {name: path and hashlib.sha256(path.read_bytes()).digest() for name, path in files.items()}
        wanted = session.timeout, *sorted(read.items(), key=str)
        worker = _workers.pop(wanted, None)
        if worker is None or worker.busy or not worker.alive:
            worker = analyst._Worker(session.path, session.timeout, session._files)
        while len(_workers) > 2:
            _workers.pop(next(iter(_workers))).end()
        _workers[wanted] = worker
        return worker

    monkeypatch.setattr(analyst.AnalystSession, "_started", started)
    monkeypatch.setattr(
        analyst.AnalystSession, "close", lambda session: ended(session) if elsewhere() else None
    )


@pytest.fixture(scope="session")
def pages():
    """The module that reads README and docs: ``text``, ``guide``, ``section``, ``blocks``, ``rows``."""
    return importlib.import_module("pages")


@pytest.fixture(scope="session", name="small_city")
def _small_city():
    """The module: plates, days, ``City``, ``logical_dump``."""
    return small_city


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
    with pytest.MonkeyPatch.context() as patched:
        small_city.try_maps_once(patched.setattr)
        made.open().release(force=True)
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


@pytest.fixture(scope="session")
def _prepared():
    return {}


@pytest.fixture
def prepared(small_city, tmp_path, tmp_path_factory, _prepared):
    """``prepared(make, ...)``: a copy of the city that ``make(city, ...)`` filled, and what it returned.

    It is called once for all tests that ask for the same.
    """

    def prepared(make, *arguments):
        asked = (make, *arguments)
        if asked not in _prepared:
            city = small_city.City(tmp_path_factory.mktemp("prepared") / "city")
            _prepared[asked] = city.folder, make(city, *arguments)
        folder, found = _prepared[asked]
        return small_city.at(_copied(folder, tmp_path / "prepared")), found

    return prepared
