"""Whatever text an analyst types, it is answered or refused in one line, and nothing is written."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.cli.main import run
from trafficdp.errors import TrafficdpError
from trafficdp.export.files.query_result import FORMATS, cell_texts, json_rows, result_bytes

WORDS = """
    select from where with recursive as union all copy to insert into update delete attach install load set
    pragma explain analyze pivot on using join limit order by group having cast try_cast null not case when
    then end over partition lateral unnest values describe summarize show cells releases budget latest_cells
    manifest hex_id slot speed_mean_kmh cell count(*) avg( sum( list( ( ) [ ] { } , . ; : :: * + - / % = < >
    ' " $$ -- /* */ ? $1 1 -1 0.5 1e308 'x' 'infinity'::timestamp interval date time uuid() blob varchar
    hugeint decimal(38,10) double json map struct 'NaN'::double x -> lambda range(3) read_text( '/etc/passwd'
"""
PLAIN = (
    "SELECT hex_id, speed_mean_kmh FROM latest_cells WHERE status = 'released' ORDER BY 2 LIMIT 3",
    "WITH a AS (SELECT * FROM cells) SELECT count(*), avg(speed_mean_kmh) FROM a GROUP BY slot",
    "SELECT {'a': [1, NULL, 'x'::BLOB]}, MAP {'k': INTERVAL 3 DAY}, '-infinity'::DATE, 1e400::DOUBLE",
    "PIVOT (SELECT slot, hex_id, speed_mean_kmh FROM cells) ON slot USING avg(speed_mean_kmh)",
    "SELECT TIMESTAMP_NS '2262-04-11 23:47:16.854775807', TIMETZ '01:00:00+01', 17014118346046923::HUGEINT",
)


def mutated():
    """Texts of queries with a few characters taken out, put in or doubled."""
    edit = st.tuples(
        st.integers(0, 120), st.integers(0, 12), st.text(max_size=6) | st.sampled_from(WORDS.split())
    )

    def apply(query, edits):
        for position, length, text in edits:
            query = f"{query[:position]}{text}{query[position + length :]}"
        return query

    return st.builds(apply, st.sampled_from(PLAIN), st.lists(edit, max_size=4))


queries = st.one_of(
    st.text(max_size=80), st.lists(st.sampled_from(WORDS.split()), max_size=25).map(" ".join), mutated()
)


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@example("SELECT 'infinity'::TIMESTAMP, 'epoch'::TIMESTAMP_NS, '290000-01-01'::TIMESTAMPTZ")
@example("SELECT union_value(a := 1), '10'::BIT, 'POINT(1 2)'::GEOMETRY, 1::BIGNUM, [NULL], 1.5::VARIANT")
@example("SELECT chr(0), '\ud800', ''")
@given(queries)
def test_no_text_makes_anything_but_our_errors(place, session, text):
    assert_answered_or_refused(place, session, text)


@pytest.mark.prove(cheap="test_no_text_makes_anything_but_our_errors")
@settings(max_examples=2_000, suppress_health_check=list(HealthCheck))
@given(queries)
def test_no_text_of_thousands_makes_anything_but_our_errors(place, session, text):
    assert_answered_or_refused(place, session, text)


def assert_answered_or_refused(place, session, text):
    table = ours(session.run, text)
    if table is not None:
        for form in FORMATS:
            ours(result_bytes, table, form)
        json.dumps(ours(json_rows, table), allow_nan=False)
        for name in table.column_names:
            assert len(ours(cell_texts, table, name) or range(table.num_rows)) == table.num_rows
    assert place.is_untouched()


def ours(call, *arguments):
    """What ``call`` gives; None after an error of ours in one line, whose exit code is 2 or 4."""
    try:
        return call(*arguments)
    except TrafficdpError as error:
        code, message = error.exit_code, str(error)
    assert code in (2, 4)
    assert "\n" not in message
    return None


@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
@given(queries)
def test_the_command_ends_with_0_2_or_4_whatever_is_asked(place, text):
    assert_ended_well(place, text)


@pytest.mark.prove(cheap="test_the_command_ends_with_0_2_or_4_whatever_is_asked")
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(queries)
def test_the_command_ends_with_0_2_or_4_whatever_of_a_hundred_is_asked(place, text):
    assert_ended_well(place, text)


def assert_ended_well(place, text):
    arguments = ["sql", f"--file={place.released}", "--timeout=3", "--", text]
    assert run(["--quiet", *arguments]) in (0, 2, 4)
    assert place.is_untouched()
