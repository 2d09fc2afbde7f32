"""Statements end at a ; that is one, and a shell lives through errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.cli.commands.sql import CONTINUED, PROMPT, run_script, run_shell, split_statements
from trafficdp.cli.options import Output
from trafficdp.errors import UsageError


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("", [], ""),
        ("select 1", [], "select 1"),
        ("select 1;", ["select 1"], ""),
        ("select 1; select 2;\n", ["select 1", " select 2"], "\n"),
        (" ; ;", [], ""),
        ("select ';'; x", ["select ';'"], " x"),
        ("select 'it''s;'; x", ["select 'it''s;'"], " x"),
        ('select ";" ; x', ['select ";" '], " x"),
        ("select 1 -- ;\n; x", ["select 1 -- ;\n"], " x"),
        ("select 1 -- ;", [], "select 1 -- ;"),
        ("select /* ; */ 1; x", ["select /* ; */ 1"], " x"),
        ("select /* ;", [], "select /* ;"),
        ("select $$;$$; x", ["select $$;$$"], " x"),
        ("select '", [], "select '"),
        ("select '-- '; x", ["select '-- '"], " x"),
    ],
)
def test_a_semicolon_in_quotes_or_comments_ends_nothing(text, statements, rest):
    assert split_statements(text) == (statements, rest)


@given(st.text(alphabet="a;'\"-/*$\n ", max_size=40))
def test_nothing_is_lost_in_splitting(text):
    statements, rest = split_statements(text)
    assert text.endswith(rest)
    position = 0
    for statement in statements:
        position = text.index(f"{statement};", position) + len(statement) + 1
    assert position <= len(text) - len(rest)


@given(
    st.lists(st.sampled_from(["select 1", "select ';'", "-- ;\nx", '";"', "$$;$$", "/*;*/ y"]), max_size=5)
)
def test_a_script_runs_its_statements_in_order(statements):
    ran = []
    run_script("; ".join(statements), ran.append)
    assert [text.strip() for text in ran] == statements


def test_a_script_stops_at_the_first_error():
    ran = []

    def run(text):
        ran.append(text)
        if text == "bad":
            raise UsageError("no")

    with pytest.raises(UsageError):
        run_script("good;bad;never", run)
    assert ran == ["good", "bad"]


class Typed:
    """A terminal at which lines are typed; exceptions among them are raised."""

    def __init__(self, monkeypatch, lines):
        self.prompts = []
        self._lines = iter(lines)
        monkeypatch.setattr("builtins.input", self)

    def __call__(self, prompt):
        self.prompts.append(prompt)
        line = next(self._lines, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line


@pytest.fixture
def shell(monkeypatch):
    def shell(*lines):
        typed = Typed(monkeypatch, lines)
        ran, described = [], []

        def run(text):
            ran.append(text.strip())
            if text.strip() == "bad":
                raise UsageError("that is bad")
            if text.strip() == "slow":
                raise KeyboardInterrupt

        run_shell(
            run, described.append, lambda: described.append("turned"), Output(as_json=False, quiet=False)
        )
        return typed.prompts, ran, described

    return shell


def test_a_statement_may_take_several_lines(shell):
    prompts, ran, _ = shell("select 1", "as a;", "\\q", "never;")
    assert ran == ["select 1\nas a"]
    assert prompts == [PROMPT, CONTINUED, PROMPT]


def test_several_statements_may_stand_in_a_line(shell):
    assert shell("a; b; c", ";")[1] == ["a", "b", "c"]


def test_an_error_is_shown_in_a_line_and_the_shell_goes_on(shell, capsys):
    assert shell("bad;", "good;")[1] == ["bad", "good"]
    assert capsys.readouterr().err == "trafficdp: that is bad\n"


def test_ctrl_c_ends_a_query_or_forgets_a_line_but_not_the_shell(shell, capsys):
    assert shell("slow;", "half a", KeyboardInterrupt(), "good;")[1] == ["slow", "good"]
    assert "interrupted" in capsys.readouterr().err


def test_what_has_not_ended_at_the_end_is_not_run(shell):
    assert shell("select 1")[1] == []


def test_tables_are_described(shell):
    assert shell("\\d", "\\d cells;", "\\?")[2] == ["", "cells"]


def test_rows_are_turned(shell):
    assert shell("\\x", "\\x;")[2] == ["turned", "turned"]


@pytest.mark.parametrize("command", ["\\y", "\\", "\\! ls", "\\i file"])
def test_an_unknown_command_is_an_error(shell, capsys, command):
    assert shell(command)[1:] == ([], [])
    assert "there is no such command" in capsys.readouterr().err
