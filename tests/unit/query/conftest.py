"""A city whose vault may be asked: two areas, two analysts, and the first day in its store."""

import shutil

import pytest

from trafficdp.config.file import load_config
from trafficdp.errors import UsageError
from trafficdp.query.dialect import LONGEST_REFUSAL
from trafficdp.query.priced_query import PricedQuery
from trafficdp.query.question import read_question
from trafficdp.query.statement import read_statement
from trafficdp.store.analyst import AnalystSession

MORE = """
[[areas]]
name = "west"
bbox = [72.70, 21.10, 72.78, 21.28]

[[areas]]
name = "O'Port"
geojson = "port.geojson"

[[analysts]]
name = "newsroom"
epsilon_per_vehicle = 9

[[analysts]]
name = "planning"
epsilon_per_vehicle = 100
"""
PORT = '{"type":"Polygon","coordinates":[[[72.78,21.1],[72.95,21.1],[72.95,21.28],[72.78,21.1]]]}'
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8, force = TRUE) "
MEAN = "cell, AVG(speed) AS m, DP_INTERVAL_LOW(m), DP_INTERVAL_HIGH(m) FROM records GROUP BY cell"


@pytest.fixture(scope="session")
def _asked_city(small_city, tmp_path_factory):
    made = small_city.City(tmp_path_factory.mktemp("asked") / "city")
    (made.folder / "port.geojson").write_text(PORT)
    made.config.write_text(made.config.read_text() + MORE)
    made.open().ingest([made.days[1]])
    return made.folder


@pytest.fixture
def city(small_city, tmp_path, _asked_city):
    """A city with areas, analysts and the first day in its store."""
    shutil.copytree(_asked_city, tmp_path / "asked")
    return small_city.at(tmp_path / "asked")


@pytest.fixture(scope="session")
def _answered_city(small_city, tmp_path_factory, _asked_city):
    made = shutil.copytree(_asked_city, tmp_path_factory.mktemp("answered") / "city")
    small_city.at(made).open().ask(CLAUSE + MEAN, analyst="newsroom")
    return made


@pytest.fixture
def answered(small_city, tmp_path, _answered_city):
    """The same after one question of the newsroom: means by cell at epsilon 8, release r0001."""
    return small_city.at(shutil.copytree(_answered_city, tmp_path / "answered"))


@pytest.fixture(scope="session")
def config(small_city, tmp_path_factory):
    """Its configuration alone."""
    folder = tmp_path_factory.mktemp("config")
    path = small_city.write_config(folder)
    (folder / "port.geojson").write_text(PORT)
    path.write_text(path.read_text() + MORE)
    return load_config(path)


@pytest.fixture(scope="session")
def clause():
    """The beginning of a question: epsilon 8, forced."""
    return CLAUSE


@pytest.fixture(scope="session")
def mean():
    """The rest of a question: means by cell, with intervals."""
    return MEAN


@pytest.fixture(scope="session")
def read(config):
    """``read(text)``: its one question, which is what its own text says."""

    def one(text):
        (part,) = read_statement(text).parts
        return read_question(part, config)

    def read(text):
        question = one(text)
        again = one(question.to_sql(config))
        assert again == question, question.to_sql(config)
        assert again.to_sql(config) == question.to_sql(config)
        return question

    return read


@pytest.fixture(scope="session")
def tried(config, tmp_path_factory):
    """``tried(text)``: the statement, whose arrangement DuckDB has run on rows of ones."""
    nowhere = tmp_path_factory.mktemp("no_store")
    with AnalystSession(None) as session:

        def tried(text):
            query = PricedQuery.of(text, config, "planning", nowhere)
            query.try_arrangement(session)
            return query

        yield tried


@pytest.fixture(scope="session")
def refused(tried):
    """``refused(text)``: the message, which is short and names one thing that works."""

    def refused(text):
        with pytest.raises(UsageError) as caught:
            tried(text)
        message = str(caught.value)
        assert len(message) <= LONGEST_REFUSAL, message
        assert "; try " in message
        return message

    return refused


@pytest.fixture(autouse=True)
def _maps_are_tried_once(two_cities, shared_workers):
    """What is charged and published must be right for any number of tries."""
