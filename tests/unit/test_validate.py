from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from trafficdp._validate import finite, in_range, integer_between, one_of, positive
from trafficdp.errors import UsageError

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
