"""The contract that others script against: options, exit codes, one line an error."""

import ctypes
import errno
import gzip
import io
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from searching import examples

import trafficdp
from trafficdp.cli.main import run
from trafficdp.errors import (
    ConfigError,
    DataError,
    InsufficientBudgetError,
    StoreBehindError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreKeyError,
    StoreReadOnlyError,
    StoreVersionError,
    UninformativeReleaseError,
    UsageError,
    VerificationError,
)

COMMANDS = [
    *("init", "ingest", "status", "plan", "release", "releases"),
    *("withdraw", "export", "report", "ledger", "verify", "demo", "compare", "audit", "sql", "stream"),
    *("doctor", "simulate", "forget", "site"),
]


def test_help_names_every_command_whole_and_every_exit_code(command):
    result = command("--help")
    assert result.code == 0
    text = " ".join(result.out.split())
    for name in COMMANDS:
        assert f" {name} " in text
    assert not any(line.endswith("...") for line in result.out.splitlines()[1:])
    for option in ("--config", "--store", "--json", "--quiet", "--wait", "--version"):
        assert option in text
    for meaning in ("0 ok", "1 our bug", "2 usage", "3 budget", "4 bad data", "5 refused", "6 store", "130"):
        assert meaning in text
    assert all(len(line) <= 80 for line in result.out.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command, name):
    result = command(name, "--help")
    assert (result.code, result.err) == (0, "")
    assert f"Usage: trafficdp {name}" in result.out


def test_nothing_at_all_gives_a_newcomer_the_help_and_a_script_exit_code_2(command):
    result = command()
    assert (result.code, result.out) == (2, "")
    assert result.err == command("--help").out


def test_the_version_is_that_of_the_package(command):
    assert command("--version").out == f"trafficdp {version('trafficdp')}\n"


SLOW_TO_LOAD = "pandas scipy geopandas pyogrio pyproj pyarrow opendp sqlglot jinja2 jsonschema h3 matplotlib"
NEEDS_A_STORE = "duckdb numpy pydantic shapely"
"""Each takes a tenth of a second or more; all of them together took `status` two seconds."""


@pytest.mark.store
@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["status"], NEEDS_A_STORE),
        (["--help"], ""),
        (["--version"], ""),
        (["ledger"], f"{NEEDS_A_STORE} h3 pyarrow scipy"),
        # what is free needs no parser
        (["sql", "SELECT count(*) FROM cells"], f"{NEEDS_A_STORE} h3 pyarrow"),
    ],
    ids=["status", "help", "version", "ledger", "sql"],
)
def test_who_asks_for_little_does_not_wait_for_what_is_slow_to_load(released, words, needed):
    program = (
        "import sys; from trafficdp.cli.main import run; code = run(sys.argv[2:]); "
        "print(code, sorted({*sys.argv[1].split()} & {*sys.modules}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, f"{SLOW_TO_LOAD} {NEEDS_A_STORE}", *words],
        cwd=released.folder,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.splitlines()[-1] == f"0 {sorted(needed.split())}"


def test_the_command_and_the_module_are_one(script):
    outputs = [
        subprocess.run([*start, "--version"], capture_output=True, check=True, timeout=60).stdout
        for start in ([script], [sys.executable, "-m", "trafficdp"])
    ]
    assert outputs[0] == outputs[1] == f"trafficdp {version('trafficdp')}\n".encode()
    assert trafficdp.open is not None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--epsilon", "3", "plan"], "options of a command come after its name"),
        (["nonsense"], "No such command 'nonsense'; see `trafficdp --help`"),
        (["--json"], "Missing command; see `trafficdp --help`"),
        (["--nonsense", "plan"], "--nonsense"),
        (["plan", "--nonsense"], "see `trafficdp plan --help`"),
        (["plan", "superfluous"], "superfluous"),
        (["ingest"], "see `trafficdp ingest --help`"),
        (["ingest", "--dry-run"], "Missing argument"),
        (["withdraw"], "Missing argument"),
        (["verify", "a", "b"], "b"),
        (["export", "r0001", "out.kml"], "--to"),
        (["export", "r0001", "--to"], "--to"),
        (["--wait", "-1", "plan"], "--wait is not a time; got --wait -1; expected a number of seconds, 0 or"),
        (["--wait", "nan", "plan"], "got --wait nan"),
        (["--wait", "inf", "plan"], "got --wait inf"),
        (["--wait", "1e400", "plan"], "got --wait 1e400"),
        (["--wait", "soon", "plan"], "got --wait soon"),
        (["--wait", "", "plan"], "--wait is not a time"),
        (["--store", "", "plan"], "--store names no folder"),
        (["--store", "  ", "plan"], "--store names no folder"),
        (["--store", "/", "plan"], "--store names no folder"),
        (["--store", "/", "init"], "--store names no folder"),
        (["--config", "nowhere.toml", "plan"], "the configuration file does not exist; got nowhere.toml"),
        (["--config", "", "plan"], "is a directory"),
        (["--config", "day1.csv.gz", "plan"], "is not UTF-8 text"),
        (["--config", "x" * 300, "plan"], "File name too long"),
        (["--config", "x" * 300, "init"], "cannot write"),
        (["--config", "missing/trafficdp.toml", "--store", "new", "init"], "cannot write trafficdp.toml"),
        (["--config", "day1.csv.gz/trafficdp.toml", "--store", "new", "init"], "cannot write trafficdp.toml"),
        (["--store", "x" * 300, "init"], "cannot write"),
        (["init"], "there is a store here already"),
        (["verify", "r9999"], "there is no such release; got r9999; expected one of r0001"),
        (["withdraw", "--yes", "r9999"], "there is no such release"),
        (["verify", ""], "there is no such release"),
        (["verify", "r" * 500], "there is no such release"),
        (["export", "r9999", "--to", "csv", "out.csv"], "there is no such release"),
        (
            ["export", "r0001", "--to", "dwg", "out.dwg"],
            "expected one of csv, flatgeobuf, geojson, geoparquet, gpkg",
        ),
        (["export", "r0001", "--to", "GeoJSON", "out.geojson"], "format is unknown"),
        (["export", "r0001", "--to", "csv", "missing/out.csv"], "a folder that does not exist"),
        (["export", "r0001", "--to", "csv", "."], "not a file"),
        (["export", "r0001", "--to", "csv", "/dev/null"], "not a file"),
        (["export", "r0001", "--to", "csv", "x" * 300], "File name too long"),
        (["demo", "--into", "."], "the demo's folder exists"),
        (["demo", "--into", "trafficdp.toml/demo"], "cannot write"),
        (["demo", "--into", "x" * 300], "cannot write"),
        *[
            ([*verb, "--epsilon", epsilon], "epsilon is ")
            for verb in (("plan",), ("release", "--yes"))
            for epsilon in (
                "0",
                "-1",
                "nan",
                "inf",
                "-inf",
                "abc",
                "1e400",
                "",
                "1e-400",
                "1/0",
                "1e7",
                "4,5",
            )
        ],
        (["plan", "--epsilon", "1e-12"], "a larger epsilon"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_wrong_call_is_one_line_exit_2_and_changes_nothing(released, refusal, arguments, says):
    before = released.dump()
    assert says in refusal(2, *arguments)
    assert released.dump() == before


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (ConfigError("x"), 2),
        (InsufficientBudgetError(remaining=1, requested=2), 3),
        (DataError("x"), 4),
        (VerificationError("x"), 4),
        (UninformativeReleaseError("x"), 5),
        *[
            (kind("x"), 6)
            for kind in (
                StoreBusyError,
                StoreVersionError,
                StoreKeyError,
                StoreReadOnlyError,
                StoreFullError,
                StoreBehindError,
                StoreDamagedError,
            )
        ],
        (OSError(errno.ENOSPC, "No space left on device"), 6),
        (PermissionError(errno.EACCES, "Permission denied", "f"), 6),
        (OSError(errno.EROFS, "Read-only file system", "f"), 6),
        (OSError(errno.ENAMETOOLONG, "File name too long", "f"), 2),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "f"), 2),
        (KeyboardInterrupt(), 130),
        (ValueError("SECRET"), 1),
        (RuntimeError("SECRET\nSECRET"), 1),
        (MemoryError(), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_kind_of_error_has_its_exit_code_and_one_line(released, monkeypatch, refusal, error, code):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr("trafficdp.cli.commands.store.read_status", fail)
    message = refusal(code, "--json", "status")
    assert "SECRET" not in message
    assert ("this is a bug in trafficdp" in message) == (code == 1)


def test_only_the_debug_variable_shows_what_a_bug_says(released, monkeypatch, command):
    def fail(*_arguments, **_options):
        raise ValueError("SECRET")

    monkeypatch.setattr("trafficdp.cli.commands.store.read_status", fail)
    monkeypatch.delenv("TRAFFICDP_DEBUG", raising=False)
    assert "ValueError at cli/test_main.py:" in command("status").err
    monkeypatch.setenv("TRAFFICDP_DEBUG", "1")
    assert "ValueError: SECRET" in command("status").err


def test_an_error_after_control_c_counts_as_interrupted(released, monkeypatch, refusal):
    def interrupted(*_arguments, **_options):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            # what DuckDB makes of it
            raise RuntimeError("Query interrupted") from None

    monkeypatch.setattr("trafficdp.cli.commands.store.read_status", interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert "interrupted" in refusal(130, "status")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    "step", ["mechanisms.registry.all_accountings", "mechanisms.simulated_cities.skills_of"]
)
def test_control_c_in_any_step_of_a_plan_loses_nothing(step, filled, monkeypatch, refusal, command):
    before = command("plan")
    held = filled.dump()
    with monkeypatch.context() as patched:
        stopped = f"trafficdp.{step}"
        patched.setattr(stopped, lambda *_, **__: signal.raise_signal(signal.SIGINT))
        assert "interrupted" in refusal(130, "plan")
    assert filled.dump() == held
    assert command("plan") == before


def test_control_c_while_reading_a_large_file_is_exit_130_and_keeps_nothing(empty, feed, script):
    rows = "".join(f"{row}\n" for row in feed("2026-03-02"))
    header, part = (gzip.compress(text.encode(), 1) for text in ("bus,at,lat,lng,v\n", rows * 100))
    # read long after the signal, however late it is sent
    (empty.folder / "large.csv.gz").write_bytes(header + part * 30)
    before = empty.dump()
    reading = subprocess.Popen(
        [script, "ingest", "large.csv.gz"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lock = empty.store / ".lock"
    deadline = time.monotonic() + 30
    held = f'"pid": {reading.pid}'
    while held not in (lock.read_text() if lock.exists() else "") and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.15)
    reading.send_signal(signal.SIGINT)
    # an abandoned reader of Arrow used to hang the process at its end
    out, err = reading.communicate(timeout=30)
    assert (reading.returncode, out) == (130, "")
    assert err.startswith("trafficdp: interrupted;")
    assert err.count("\n") == 1
    assert empty.dump() == before


def test_a_busy_store_is_exit_6_after_the_wait_and_names_its_holder(released, refusal):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, os, sys, time\n"
            f"fd = os.open({str(released.store / '.lock')!r}, os.O_RDWR | os.O_CREAT)\n"
            "fcntl.flock(fd, fcntl.LOCK_EX)\nos.ftruncate(fd, 0)\n"
            'os.pwrite(fd, b\'{"pid": 4711, "command": "release"}\', 0)\n'
            "print(flush=True)\n"
            "time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        holder.stdout.read(1)
        for arguments in (
            ["status"],
            ["release", "--yes"],
            ["ingest", "day1.csv.gz"],
            ["withdraw", "--yes", "r0001"],
        ):
            message = refusal(6, "--wait", "0.1", *arguments)
            assert "held by process 4711 (trafficdp release)" in message
            assert "--wait" in message
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_dot_is_the_store_one_stands_in(released, monkeypatch, command):
    monkeypatch.chdir(released.store)
    result = command("--config", "../trafficdp.toml", "--store", ".", "--json", "status")
    assert (result.code, result.err) == (0, "")
    assert result.json["releases"] == 1


WORDS = st.sampled_from(
    [
        *COMMANDS,
        "--json", "--quiet", "--wait", "--store", "--config", "--epsilon", "--force", "--to", "--into",
        "--dry-run", "--", "-", "-h", "--help", "-1", "0", "0.01", "1e400", "nan", "r0001", "r0002",
        "../r0001", "csv", "gpkg", "geojson", "city.store", "none.store", "trafficdp.toml", "day1.csv.gz",
        "day2.csv.gz", "out/x", "out.bin", ".", "..", "/", "", " ", "\udcff", "\x1b[31m", "a\nb", "x" * 300,
        "\u0661",
    ]
)  # fmt: skip
ARBITRARY = st.text(st.characters(exclude_characters="\0", exclude_categories=[]), max_size=12)


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.lists(st.one_of(WORDS, WORDS, ARBITRARY), max_size=6))
@example(arguments=["--store", "..", "init"])
@example(arguments=["ingest", "day1.csv.gz", "day1.csv.gz", "x" * 300])
@example(arguments=["sql"])
@example(arguments=["plan", "--epsilon", "\u0661"])
@example(arguments=["--config", "city.store", "plan"])
@example(arguments=["--config", "\udcff", "--store", "\udcfe", "init"])
def test_no_call_whatever_is_a_bug(released, capfd, arguments):
    # errors of one line each, and none of our own
    capfd.readouterr()
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())):
        code = run(arguments)
    out, err = capfd.readouterr()
    assert code in (0, 2, 3, 4, 5, 6), (arguments, err)
    if code and arguments:
        assert out == ""
        assert err.startswith("trafficdp: ")
        assert err.count("\n") == 1
        assert "bug in trafficdp" not in err


EPSILONS = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.decimals(allow_nan=True).map(str),
    st.fractions().map(str),
    st.text(max_size=8).filter(lambda text: not text.startswith("-")),
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(epsilon=EPSILONS)
@example(epsilon="1e-12")
@example(epsilon="0.0000000000015")
@example(epsilon="1000000")
@example(epsilon="1e999999999999")
@example(epsilon="9" * 4400)
def test_no_epsilon_whatever_is_a_bug(released, capfd, epsilon):
    capfd.readouterr()
    code = run(["--json", "plan", f"--epsilon={epsilon}"])
    out, err = capfd.readouterr()
    assert code in (0, 2), err
    assert bool(out) == (code == 0)
    assert err.count("\n") == (0 if code == 0 else 1)


def test_hidden_files_of_a_failed_call_do_not_stay(released, refusal):
    before = sorted(os.listdir(released.folder))
    refusal(2, "export", "r0001", "--to", "nonsense", "out.csv")
    refusal(2, "--store", "x" * 300, "init")
    assert sorted(os.listdir(released.folder)) == before


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("plan", "--json"), ("--json", "plan")),
        (("plan", "--quiet", "--epsilon", "2"), ("--quiet", "plan", "--epsilon", "2")),
        (("status", "--config=trafficdp.toml", "--json"), ("--config=trafficdp.toml", "--json", "status")),
        (("status", "--store", "city.store", "--json"), ("--store", "city.store", "--json", "status")),
        (("sql", "--json", "SELECT 1 AS a"), ("--json", "sql", "SELECT 1 AS a")),
    ],
)
def test_global_options_mean_the_same_after_the_command(released, command, typed, meant):
    assert command(*typed) == command(*meant)
    assert command(*typed).code == 0


def test_what_follows_two_dashes_is_no_option(released, refusal):
    assert "SQL" in refusal(2, "sql", "--", "--json") or "statement" in refusal(2, "sql", "--", "--json")


def test_help_has_a_short_name(command):
    assert command("-h").out == command("--help").out
    assert "--resolution" in command("plan", "-h").out


@pytest.mark.slow
def test_a_shell_completes_commands_and_their_options(process):
    def completed(*words):
        asked = {**os.environ, "_TRAFFICDP_COMPLETE": "complete_bash", "COMP_CWORD": str(len(words))}
        asked["COMP_WORDS"] = " ".join(("trafficdp", *words))
        return process(env=asked, capture_output=True, text=True).stdout.split()

    assert completed("rel") == ["release", "releases"]
    assert "--within-budget" in completed("plan", "--wi")


@pytest.mark.slow
def test_what_is_slow_to_load_is_not_loaded_to_say_what_a_store_holds():
    slow = "scipy", "pandas", "pyarrow", "opendp", "trafficdp.workspace", "trafficdp.privacy.disclosure"
    slow = *slow, "trafficdp.measurement", "trafficdp.mechanisms.protocol", "trafficdp.mechanisms.registry"
    look = "import sys, trafficdp.cli.commands.store, trafficdp.config.file; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert not {*slow} & {*done.stdout.split()}


KEPT = """
import sys
from trafficdp.cli.main import reuse_freed_memory
if len(sys.argv) > 1:
    reuse_freed_memory()
import numpy as np
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
large = np.ones(25_000_000)
del large
print(resident() - before)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc"
)
def test_the_command_keeps_what_large_arrays_leave_free():
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", KEPT, *each], capture_output=True, check=True).stdout)
        for each in (["kept"], [])
    )
    assert kept > 190_000_000 > 10_000_000 > given_back
