import inspect
from fractions import Fraction

import pytest

from trafficdp import errors

FAMILY = [
    each for _, each in inspect.getmembers(errors, inspect.isclass) if each.__module__ == errors.__name__
]
EXIT_CODES = {
    "TrafficdpError": 1,
    # the second check of a charge failed: a bug, whatever the user did
    "AllocationError": 1,
    "UsageError": 2,
    "ConfigError": 2,
    "InsufficientBudgetError": 3,
    "AnalystBudgetError": 3,
    "DataError": 4,
    "VerificationError": 4,
    "UninformativeReleaseError": 5,
    "StoreUnavailableError": 6,
}


@pytest.mark.parametrize("kind", FAMILY)
def test_every_error_is_one_of_the_family_and_has_a_word_about_itself(kind):
    assert issubclass(kind, errors.TrafficdpError) or kind is errors.TrafficdpError
    assert kind.__doc__


@pytest.mark.parametrize("kind", FAMILY)
def test_exit_codes_are_those_that_scripts_rely_on(kind):
    expected = EXIT_CODES.get(kind.__name__, 6 if issubclass(kind, errors.StoreUnavailableError) else None)
    assert kind.exit_code == expected


def test_a_message_says_what_got_expected_and_what_to_do():
    error = errors.UsageError("tau is wrong", got=3, expected="at most 2", todo="take less")
    assert str(error) == "tau is wrong; got 3; expected at most 2; take less"
    assert (error.what, error.got, error.expected, error.todo) == (
        "tau is wrong",
        3,
        "at most 2",
        "take less",
    )


def test_parts_that_are_unknown_are_left_out():
    assert str(errors.DataError("no rows")) == "no rows"
    assert str(errors.DataError("no rows", got=0)) == "no rows; got 0"
    assert str(errors.DataError("no rows", todo="look again")) == "no rows; look again"


def test_a_message_is_one_line_whatever_is_quoted():
    error = errors.DataError("bad\nheader", got="a\r\n\tb", expected="c\n\n", todo="d\u2028e")
    assert len(str(error).splitlines()) == 1
    assert str(error) == "bad header; got a b; expected c; d e"


@pytest.mark.parametrize(
    ("remaining", "requested", "left", "cost"),
    [
        (Fraction(3, 2), 2, "1.5", "2"),
        (0.0, 0.25, "0", "0.25"),
        (Fraction(8), 8 + Fraction(1, 10**12), "8.000000000000", "8.000000000001"),
        (Fraction(123456789, 100), Fraction(123456790, 100), "1234567.890000000000", "1234567.900000000000"),
    ],
)
def test_a_refused_budget_says_remaining_and_requested_and_never_the_same(remaining, requested, left, cost):
    error = errors.InsufficientBudgetError(remaining=remaining, requested=requested)
    assert f"costs epsilon {cost};" in str(error)
    assert f"at most the remaining {left};" in str(error)
    assert (error.remaining, error.requested) == (remaining, requested)
    assert len(str(error).splitlines()) == 1


def test_where_nothing_is_left_no_smaller_epsilon_is_suggested():
    assert "smaller" in str(errors.InsufficientBudgetError(remaining=1, requested=2))
    nothing = str(errors.InsufficientBudgetError(remaining=0, requested=2))
    assert "smaller" not in nothing
    assert "nothing left" in nothing
