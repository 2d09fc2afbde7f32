"""Where the machine fails, no file is to blame: exit 6, what to do, and nothing is noted or lost."""

import errno
import os

import duckdb
import pytest

from trafficdp._durable import MACHINE, from_os_error
from trafficdp.cli.main import run
from trafficdp.config.document import read_text
from trafficdp.errors import StoreDamagedError, StoreFullError, StoreKeyError, StoreUnavailableError
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.release.feeds import digest_of
from trafficdp.release.publication import manifests
from trafficdp.store.store_files import Head, store_failures

DUCKDB_SAYS = {
    'IO Error: Cannot open file "/v": Too many open files': "ulimit -n",
    'IO Error: Could not write file "/v": Input/output error': "the disk is sound",
    "FATAL Error: fsync failed!": "the disk is sound",
    'IO Error: Could not read from file "/v": Input/output error': "the disk is sound",
}


@pytest.fixture(params=sorted(MACHINE), ids=errno.errorcode.get)
def failing(request, monkeypatch):
    """``failing(part)``: every file whose name has ``part`` cannot be opened for want of the machine."""

    def failing(part):
        opened, listed = os.open, os.listdir

        def refuse(path):
            if part in str(path):
                raise OSError(request.param, os.strerror(request.param), str(path))

        def open_(path, *arguments, **options):
            refuse(path)
            return opened(path, *arguments, **options)

        def listdir(path="."):
            refuse(path)
            return listed(path)

        monkeypatch.setattr(os, "open", open_)
        monkeypatch.setattr(os, "listdir", listdir)
        monkeypatch.setattr("builtins.open", lambda path, *_, **__: refuse(path))

    return failing


@pytest.mark.parametrize("number", sorted(MACHINE))
def test_it_is_said_what_to_do(number):
    error = from_os_error(OSError(number, os.strerror(number), "/city.store/x"), "writing it")
    assert type(error) is StoreUnavailableError
    assert error.exit_code == 6
    assert "run it again" in error.todo


@pytest.mark.parametrize("said", DUCKDB_SAYS)
def test_a_database_is_neither_full_nor_damaged_for_it(said):
    with pytest.raises(StoreUnavailableError) as caught, store_failures("opening the vault"):
        raise (duckdb.FatalException if "FATAL" in said else duckdb.IOException)(said)
    assert not isinstance(caught.value, StoreFullError | StoreDamagedError)
    assert DUCKDB_SAYS[said] in caught.value.todo


def test_nothing_is_called_damaged_or_missing(failing, tmp_path):
    key = VehicleKey.create(tmp_path / "city.key")
    head = Head(tmp_path / "city.key", "this")
    head.write(None)
    (tmp_path / "releases" / "r0001").mkdir(parents=True)
    (tmp_path / "releases" / "r0001" / "manifest.json").write_text("{}")
    (tmp_path / "day.csv").write_text("a\n")
    failing(str(tmp_path))
    for look in (
        lambda: VehicleKey.load(tmp_path / "city.key"),
        lambda: head.verify([]),
        lambda: manifests(tmp_path),
        lambda: InputFile(tmp_path / "day.csv"),
        lambda: digest_of(tmp_path / "day.csv", key),
        lambda: read_text(tmp_path / "trafficdp.toml", what="the configuration file", todo="none"),
    ):
        with pytest.raises(StoreUnavailableError, match="run it again") as caught:
            look()
        assert not isinstance(caught.value, StoreKeyError | StoreDamagedError)


def test_a_command_that_lists_a_folder_says_so(failing, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trafficdp.cli.main._application", lambda _: lambda *_, **__: os.listdir("releases"))
    failing("releases")
    assert run(["releases"]) == 6
    assert "run it again" in capsys.readouterr().err


@pytest.mark.slow
def test_a_stream_passes_over_no_file_that_it_could_not_read_for_want_of_the_machine(
    failing, monkeypatch, small_city, tmp_path
):
    city = small_city.City(tmp_path / "city", last="2026-03-03")
    stream = "[stream]\nepsilon = 8\npublish_every = 60\nlateness = 3\nrecords_per_vehicle = 9\n"
    text = city.config.read_text().replace("[[source]]", f"{stream}records_per_step = 2\n\n[[source]]", 1)
    city.config.write_text(text)
    arriving = city.folder / "arriving"
    arriving.mkdir()
    city.days[1].rename(arriving / "part.csv")
    words = ["--config", str(city.config), "--quiet", "stream", str(arriving), "--once"]
    with monkeypatch.context():
        assert run(["--config", str(city.config), "--quiet", "init"]) == 0
        failing("part.csv")
        assert run([*words, "--end"]) == 6
    monkeypatch.undo()
    assert run([*words, "--end"]) == 0
    assert city.sql("SELECT sum(rows_taken) > 0 FROM stream_files") == [(True,)]
