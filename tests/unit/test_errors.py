import inspect
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from trafficdp import errors
from trafficdp.errors import UsageError, finite, in_range, integer_between, one_of, positive

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


def test_of_one_account_that_all_share_nobody_is_told_to_leave_vehicles_or_hexagons_out():
    for remaining in (0, 1):
        told = str(errors.InsufficientBudgetError(remaining=remaining, requested=2, shared=True))
        assert "all vehicles share" in told
        assert "some vehicle" not in told
        assert "or fewer bins" not in told
    of_analyst = {"analyst": "newsroom", "remaining": 0, "requested": 2}
    assert "fewer hexagons" in str(errors.AnalystBudgetError(**of_analyst))
    assert "fewer hexagons" not in str(errors.AnalystBudgetError(**of_analyst, shared=True))


NOT_NUMBERS = [None, "1", "", [1], True, False, np.nan, np.inf, -np.inf, 10**400, 1j]


@pytest.mark.parametrize("number", [0, -3, 2.5, Fraction(1, 4), np.float64(0.5), np.int64(7), 10**300])
def test_finite_numbers_are_returned_as_floats(number):
    found = finite(tau=number)
    assert type(found) is float
    assert found == float(number)


@pytest.mark.parametrize("wrong", NOT_NUMBERS)
@pytest.mark.parametrize("check", [finite, positive, lambda **named: in_range(0, 1, **named)])
def test_what_is_no_finite_number_is_refused_by_its_name(check, wrong):
    with pytest.raises(UsageError, match=r"tau is not a finite number; got tau="):
        check(tau=wrong)


@pytest.mark.parametrize("wrong", [0, 0.0, -0.0, -1, -5e-324])
def test_zero_and_below_are_not_positive(wrong):
    with pytest.raises(UsageError, match=r"tau is not positive; got tau=.* expected a number above 0"):
        positive(tau=wrong)


def test_positive_numbers_are_returned():
    assert positive(tau=5e-324) == 5e-324
    assert positive(tau=3) == 3.0


@pytest.mark.parametrize("wrong", [0, 1, -0.1, 1.1])
def test_ranges_are_open(wrong):
    with pytest.raises(UsageError, match=r"delta is out of range; got delta=.*expected 0 < delta < 1"):
        in_range(0, 1, delta=wrong)
    assert in_range(0, 1, delta=0.5) == 0.5


@pytest.mark.parametrize("wrong", [-1, 16, 7.0, "7", None, True, np.nan])
def test_integers_outside_their_range_are_refused(wrong):
    with pytest.raises(UsageError, match=r"resolution is out of range.*an integer from 0 to 15"):
        integer_between(0, 15, resolution=wrong)


def test_integers_at_the_ends_are_returned():
    assert [integer_between(0, 15, resolution=value) for value in (0, 7, 15)] == [0, 7, 15]


@pytest.mark.parametrize("wrong", ["d", "", None, 1, ["a"]])
def test_words_that_are_not_in_the_list_are_refused(wrong):
    with pytest.raises(UsageError, match=r"letter is unknown; got letter=.*one of a, b, c"):
        one_of(("c", "a", "b"), letter=wrong)


def test_the_nearest_word_is_offered_where_one_is_near():
    with pytest.raises(UsageError, match=r'did you mean "geojson"\?'):
        one_of(("csv", "geojson"), format="GeoJson")
    with pytest.raises(UsageError) as refusal:
        one_of(("csv", "geojson"), format="shp")
    assert "did you mean" not in str(refusal.value)


def test_words_in_the_list_are_returned():
    assert one_of({"a", "b"}, letter="b") == "b"


def test_exactly_one_argument_is_checked():
    for check in (finite, positive):
        with pytest.raises(ValueError, match="values to unpack"):
            check(a=1, b=2)
        with pytest.raises(ValueError, match="values to unpack"):
            check()


def test_decimals_are_not_taken_for_floats():
    # exact settings are parsed as fractions, never through here
    with pytest.raises(UsageError):
        finite(tau=Decimal("0.1"))
