from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.errors import UsageError
from trafficdp.privacy.loss import (
    LARGEST_LOSS,
    PICO,
    PureDP,
    decimal_text,
    loss_upper_bound,
    round_up,
    rounded_up,
    sum_per_user,
    to_pico,
)

positive = st.floats(min_value=1e-12, max_value=1e17)


@given(sensitivity=positive, scale=positive)
def test_a_loss_is_at_least_the_exact_quotient_and_hardly_more(sensitivity, scale):
    exact = Fraction(sensitivity) / Fraction(scale)
    bound = Fraction(float(loss_upper_bound(np.array([sensitivity]), np.array([scale]))[0]))
    assert exact <= bound <= exact * (1 + Fraction(1, 2**51))


@pytest.mark.parametrize("scale", [0.0, -0.0, -1.0, np.nan, np.inf, 1e-320])
def test_nothing_changes_at_no_cost_whatever_the_scale(scale):
    assert loss_upper_bound(np.array([0.0]), np.array([scale])).tolist() == [0.0]


@pytest.mark.parametrize("scale", [0.0, -0.0, -1.0, np.nan, -np.inf, 5e-324])
def test_a_change_without_noise_has_no_finite_price(scale):
    bound = loss_upper_bound(np.array([1.0]), np.array([scale]))
    assert bound.tolist() == [np.inf]
    with pytest.raises(UsageError, match="too large to account for"):
        to_pico(bound)


@given(loss=st.floats(min_value=0, max_value=1e6, exclude_min=True))
def test_pico_epsilons_are_rounded_up(loss):
    if loss >= 999_999.9999:
        return
    found = int(to_pico(np.array([loss]))[0])
    exact = Fraction(loss) * PICO
    assert exact <= found <= exact * (1 + Fraction(1, 2**50)) + 2


def test_no_loss_is_no_pico_epsilon():
    assert to_pico(np.array([0.0, -0.0])).tolist() == [0, 0]
    assert to_pico(np.array([])).tolist() == []
    assert to_pico(np.array([5e-324])).tolist() == [1]


@pytest.mark.parametrize("loss", [np.nan, np.inf, 1.1e6, 1e300])
def test_a_loss_that_is_no_number_or_too_large_is_refused(loss):
    with pytest.raises(UsageError, match="too large to account for"):
        to_pico(np.array([0.5, loss]))


@given(st.floats(min_value=-1e300, max_value=1e300))
def test_rounding_up_goes_to_the_next_float(value):
    up = float(round_up(np.array([value]))[0])
    assert up > value
    assert float(np.nextafter(up, -np.inf)) == value


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10**15)), max_size=40))
def test_sums_per_user_are_exact(pairs):
    users = np.array([user for user, _ in pairs], dtype=np.int64)
    picos = np.array([pico for _, pico in pairs], dtype=np.int64)
    expected = [sum(pico for owner, pico in pairs if owner == user) for user in range(5)]
    assert sum_per_user(picos, users, 5).tolist() == expected


@pytest.mark.parametrize("bins", [2, 10, 19, 37, 1000])
def test_sums_that_would_wrap_around_are_refused(bins):
    # 19 * 10^18 is 5.5 * 10^17 in 64 bits: a loss of 19 million would be charged as half a million
    pico = np.full(bins, LARGEST_LOSS, dtype=np.int64)
    with pytest.raises(UsageError, match="too large to account for"):
        sum_per_user(pico, np.zeros(bins, dtype=np.int64), 1)


def test_the_largest_sum_is_still_accepted():
    assert sum_per_user(np.array([LARGEST_LOSS - 1, 1]), np.array([0, 0]), 1).tolist() == [LARGEST_LOSS]
    with pytest.raises(UsageError):
        sum_per_user(np.array([LARGEST_LOSS, 1]), np.array([0, 0]), 1)


def test_negative_losses_are_refused_even_when_the_sum_is_not():
    with pytest.raises(UsageError, match="negative"):
        sum_per_user(np.array([5, -1]), np.array([0, 0]), 1)


@pytest.mark.parametrize(
    ("written", "pico"),
    [
        ("1", PICO),
        (1, PICO),
        (0.1, PICO // 10),
        ("0.1", PICO // 10),
        (Decimal("4.5"), 9 * PICO // 2),
        (Fraction(1, 3), 333_333_333_333),
        (1e-12, 1),
        ("1e-12", 1),
        (1e6, LARGEST_LOSS),
        (np.float64(0.3), 3 * PICO // 10),
    ],
)
def test_an_epsilon_is_read_as_the_decimal_it_is_written_as(written, pico):
    assert PureDP.of(written) == PureDP(pico)


@given(st.integers(1, LARGEST_LOSS))
def test_an_epsilon_of_whole_picos_survives_being_written(pico):
    assert PureDP.of(decimal_text(pico)).pico == pico
    assert PureDP.of(Decimal(pico).scaleb(-12)).pico == pico
    assert PureDP(pico).exact == Fraction(pico, PICO)


@pytest.mark.parametrize("wrong", [0, -1, "0", "-0.5", 9e-13, 1_000_001, "1e7", Fraction(-1, 2)])
def test_an_epsilon_out_of_range_is_refused(wrong):
    with pytest.raises(UsageError, match=r"epsilon is out of range.*10\^-12 to 1,000,000"):
        PureDP.of(wrong)


@pytest.mark.parametrize("wrong", ["", "abc", "nan", "inf", None, True, float("nan"), float("-inf"), "1/0"])
def test_an_epsilon_that_is_no_number_is_refused(wrong):
    with pytest.raises(UsageError, match="epsilon is not a number"):
        PureDP.of(wrong)


@pytest.mark.parametrize("wrong", ["1e999999999", "1e-999999999", Decimal("1e999999")])
def test_an_astronomic_exponent_is_refused_at_once(wrong):
    with pytest.raises(UsageError, match="out of range"):
        PureDP.of(wrong)


def test_pure_losses_add_and_compare_among_themselves_only():
    assert PureDP(1) + PureDP(2) == PureDP(3)
    assert PureDP(1) < PureDP(2)
    for other in (1, 0.5, Fraction(1), "1", None):
        with pytest.raises(TypeError):
            PureDP(1) + other
        with pytest.raises(TypeError):
            other + PureDP(1)
        with pytest.raises(TypeError):
            _ = PureDP(1) < other
        assert PureDP(1) != other


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (4_500_000_000_000, "4.5"),
        (PICO, "1"),
        (1_000 * PICO, "1000"),
        (LARGEST_LOSS - 1, "999999.999999999999"),
        (-1_500_000_000_000, "-1.5"),
    ],
)
def test_decimal_texts_are_plain(pico, text):
    assert decimal_text(pico) == text
    assert str(PureDP(pico)) == text


@given(st.integers(-(10**40), 10**40))
def test_decimal_texts_are_exact_in_any_decimal_context(pico):
    with localcontext() as context:
        context.prec = 5
        text = decimal_text(pico)
    assert Fraction(text) == Fraction(pico, PICO)
    assert not text.endswith(".")
    assert "." not in text or not text.endswith("0")


def test_an_integer_too_long_to_print_is_refused():
    with pytest.raises(UsageError, match="out of range"):
        PureDP.of(10**5000)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (1.2341, "1.24"),
        (2.0, "2"),
        (0.99901, "1"),
        (123_456.0, "124000"),
        (999_001.0, "1000000"),
        (0.000_123_41, "0.000124"),
        (17.0, "17"),
        (17.01, "17.1"),
    ],
)
def test_a_loss_is_told_in_three_digits_rounded_up(loss, text):
    assert rounded_up(loss) == text
