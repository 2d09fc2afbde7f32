"""What is printed where: for people, for scripts, for nobody."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from trafficdp.cli.main import main
from trafficdp.cli.options import Output, fit_column_widths, minute_in_words, strip_control_characters
from trafficdp.errors import StoreFullError

READ_ONLY = [
    ("status",),
    ("plan",),
    ("plan", "--epsilon", "0.5"),
    ("plan", "--max-half-width", "3", "--epsilon", "2", "--save", "found"),
    ("releases",),
    ("ledger",),
    ("verify", "r0001"),
    ("export", "r0001", "out.geojson", "--to", "geojson"),
    ("export", "r0001", "--to", "csv", "out.csv"),
    ("export", "r0001", "--to", "geoparquet", "out.parquet"),
    ("export", "r0001", "--to", "gpkg", "out.gpkg"),
    ("export", "r0001", "--to", "html", "out.html"),
    ("ingest", "--dry-run", "day1.csv.gz"),
    ("ingest", "day1.csv.gz"),
    ("demo", "--into", "demo"),
]
QUIET = [READ_ONLY[place] for place in (0, 1, 4, 5, 6, 7, 13, 14)]
"""One of every command: what says nothing is the same for all its options."""
WRITING = [
    ("release", "--yes", "--epsilon", "5"),
    ("withdraw", "--yes", "r0001"),
    ("--store", "other.store", "init"),
]


def name_of(command):
    return "-".join(part.strip("-") for part in command[:2])


@pytest.mark.parametrize("arguments", READ_ONLY + WRITING, ids=name_of)
def test_every_command_speaks_to_people_on_standard_output_alone(released, command, arguments):
    result = command(*arguments)
    assert result.code == 0, result.err
    assert result.err == ""
    assert result.out.strip()
    assert "\x1b" not in result.out
    assert "…" not in result.out


@pytest.mark.parametrize("arguments", READ_ONLY + WRITING, ids=name_of)
def test_every_command_prints_one_json_object_and_nothing_else(released, command, arguments):
    result = command("--json", *arguments)
    assert (result.code, result.err) == (0, "")
    assert isinstance(json.loads(result.out), dict)
    assert result.out.isascii()


@pytest.mark.parametrize("arguments", QUIET + WRITING, ids=name_of)
def test_quiet_prints_nothing_at_all(released, command, arguments):
    result = command("--quiet", *arguments)
    assert (result.code, result.out, result.err) == (0, "", "")


def test_quiet_with_json_prints_the_json_alone(released, command):
    assert command("--quiet", "--json", "ledger").json == command("--json", "ledger").json


def test_a_warning_goes_to_standard_error_unless_quiet(empty, command, feed):
    few = empty.write("few.csv", feed("2026-03-02")[:5])
    for flags in ((), ("--json",)):
        warned = command(*flags, "ingest", "--dry-run", few)
        assert warned.code == 0
        assert warned.err.startswith("few.csv: too few consecutive records to check whether")
    assert command("--quiet", "ingest", "--dry-run", few).err == ""


def test_no_number_is_cut_at_any_width(released, command, monkeypatch):
    # an epsilon of fourteen characters
    assert command("--quiet", "release", "--yes", "--epsilon", "5.123456789012").code == 0
    for arguments in (("ledger",), ("releases",), ("plan",), ("ingest", "day1.csv.gz")):
        monkeypatch.delenv("COLUMNS", raising=False)
        numbers = re.findall(r"\d[\d.,:-]*", command(*arguments).out)
        assert len(numbers) > 3
        for columns in ("20", "80", "250"):
            monkeypatch.setenv("COLUMNS", columns)
            narrow = command(*arguments).out
            assert re.findall(r"\d[\d.,:-]*", narrow) == numbers, (arguments, columns)
            assert "…" not in narrow
            if arguments[0] in ("ledger", "releases"):
                assert "5.123456789" in narrow


@pytest.fixture
def terminal(monkeypatch):
    """``terminal(columns, show)``: what a terminal gets from ``show(Output)``, without its colours."""

    def terminal(columns, show):
        leader, follower = pty.openpty()
        with monkeypatch.context() as patched, os.fdopen(follower, "w", encoding="utf-8") as stream:
            patched.setenv("COLUMNS", str(columns))
            patched.setenv("TERM", "xterm")
            patched.setattr(sys, "stdout", stream)
            show(Output(as_json=False, quiet=False))
        with os.fdopen(leader, "rb", buffering=0) as screen:
            parts = []
            # Linux says by an error that a terminal has no more
            with suppress(OSError):
                while part := screen.read(65536):
                    parts.append(part)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(parts).decode())

    return terminal


@pytest.mark.parametrize("columns", [24, 60, 80])
def test_a_terminal_gets_whole_numbers_and_words(terminal, columns):
    names = ["release", "error", "epsilon", "prose"]
    rows = [["r0001", 5.123, "5.999999999417", "some words to be folded"]]
    text = terminal(columns, lambda output: output.table("T", names, rows, prose=("prose",)))
    assert "5.999999999417" in text
    assert "5.123" in text
    assert "…" not in text
    for word in ("some", "words", "folded"):
        assert re.search(rf"\b{word}\b", text)


def test_a_terminal_gets_sentences_wrapped_between_words_and_a_pipe_whole(terminal, capsys):
    sentence = "a sentence of 12345.678 words that is longer than forty columns, and a/path/" + "x" * 60
    wrapped = terminal(40, lambda output: output.say(sentence))
    assert wrapped.split() == sentence.split()
    assert all(len(line) <= 40 or " " not in line for line in wrapped.splitlines())
    Output(as_json=False, quiet=False).say(sentence)
    assert capsys.readouterr().out == sentence + "\n"


def test_nothing_of_a_terminal_reaches_a_pipe_even_if_colours_are_forced(released, command, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    done = command("plan")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out


@pytest.mark.parametrize("arguments", [["--json", "ledger"], ["--help"], ["release", "--yes"]])
def test_a_reader_that_leaves_early_is_no_error_and_does_not_stop_the_work(
    filled, command, small_city, arguments
):
    reading, writing = os.pipe()
    os.close(reading)
    child = small_city.forked(arguments, stdout=writing, stderr="err")
    os.close(writing)
    assert small_city.ended(child) == 0
    assert (filled.folder / "err").read_bytes() == b""
    if arguments[0] != "release":
        return
    (release,) = command("--json", "releases").json["releases"]
    assert release["status"] == "published"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_output_that_cannot_be_written_is_exit_6(released, small_city, tmp_path):
    said = tmp_path / "said"
    assert small_city.ended(small_city.forked(["status"], stdout="/dev/full", stderr=said)) == 6
    assert said.read_bytes().startswith(b"trafficdp: writing the output failed: the disk is full;")
    assert said.read_bytes().count(b"\n") == 1


def test_closed_standard_streams_are_not_missed(released, script):
    before = released.dump()
    done = subprocess.run(
        ["sh", "-c", f'"{script}" "$@" <&- >&- 2>&-', "sh", "status"], check=False, timeout=60
    )
    assert done.returncode == 0
    assert released.dump() == before


def test_a_locale_without_the_letters_prints_escapes(released, process, monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stdout)
        patched.setattr(sys, "argv", ["trafficdp", "export", "r0001", "\u00fc.csv"])
        patched.setattr(os, "_exit", sys.exit)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    assert stdout.buffer.getvalue() == b"wrote \\xfc.csv\n"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = process("ingest", "\u00f6.csv", capture_output=True, env=environment)
    assert (done.returncode, done.stdout) == (4, b"")
    assert done.stderr == b"trafficdp: there is no file \\xf6.csv; correct its name\n"


def test_names_cannot_steer_the_terminal(released, command, refusal):
    assert "a?[31mb" in refusal(4, "ingest", "a\x1b[31mb\x07.csv")
    assert "no file ?.csv" in refusal(4, "ingest", "\udcff.csv")
    result = command("export", "r0001", "--to", "csv", ":key:[bold]\x1b[1m.csv")
    assert result.out == "wrote :key:[bold]?[1m.csv\n"
    assert command("--json", "export", "r0001", "--to", "csv", "\u00fc.csv").json["file"] == "\u00fc.csv"


def test_a_full_disk_behind_standard_output_is_our_error(monkeypatch):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(StoreFullError):
        Output(as_json=True, quiet=False).result({"a": 1})


def test_numbers_are_right_aligned_and_whole(capsys):
    output = Output(as_json=False, quiet=False)
    output.table("T", ["name", "n", "x", "exact"], [["a", 1234567, 1.5, "0.1"], ["b", 2, 1e-9, ""]])
    lines = capsys.readouterr().out.splitlines()
    assert "1,234,567" in lines[-3]
    assert "1.500" in lines[-3]
    assert "1.000e-09" in lines[-2]
    assert lines[-3].index("1,234,567") + 8 == lines[-2].index(" 2 ") + 1
    assert lines[-3].rstrip().endswith("0.1")


def test_plain_keeps_letters_and_drops_controls():
    assert strip_control_characters("Köln \u2192 x\x1b[0m\n\u202e") == "Köln \u2192 x?[0m??"


def test_instants_are_shown_to_the_minute_by_the_citys_clocks():
    assert minute_in_words("2026-03-02T01:02:59+05:30", "UTC") == "2026-03-01 19:32"
    assert minute_in_words("2026-03-01T19:32:59+00:00", "Asia/Kolkata") == "2026-03-02 01:02"


def test_columns_with_words_share_what_a_terminal_has():
    assert fit_column_widths([33, 90, 7], [10, 35, 7], 71) == [29, 35, 7]
    assert fit_column_widths([33, 90, 7], [10, 35, 7], 200) == [33, 90, 7]
    assert fit_column_widths([33, 90, 7], [10, 35, 7], 20) == [10, 35, 7]


@pytest.mark.parametrize("quiet", [False, True])
def test_steps_show_on_a_terminal_how_far_it_is_unless_quiet(monkeypatch, quiet):
    leader, follower = pty.openpty()
    with monkeypatch.context() as patched, os.fdopen(follower, "w", encoding="utf-8") as stream:
        patched.setenv("TERM", "xterm")
        patched.setattr(sys, "stderr", stream)
        output = Output(as_json=False, quiet=quiet)
        with output.progress_steps("looking round") as step:
            step("third of seven", 3, 7)
    with os.fdopen(leader, "rb", buffering=0) as screen:
        shown = b""
        with suppress(OSError):
            while part := screen.read(65536):
                shown += part
    assert (b"third of seven" in shown) == (not quiet)
    assert (shown == b"") == quiet


def test_steps_say_nothing_into_a_pipe(capsys):
    with Output(as_json=False, quiet=False).progress_steps("looking round") as step:
        step("third of seven", 3, 7)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_long_tables_are_printed_as_rich_prints_them(capsys):
    def printed(word):
        rows = [[number, f"{word} {number}", number / 7] for number in range(300)]
        Output(as_json=False, quiet=False).table("Table", ["number", "words", "share"], rows)
        return capsys.readouterr().out

    # rich lays out what is not ASCII
    assert printed("ete") == printed("été").replace("é", "e")
