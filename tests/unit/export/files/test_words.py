from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest

from trafficdp.export.files.disclosure import (
    BIN_LIST,
    COUNTS_REVEALED,
    NOT_PROTECTED,
    PROTECTED,
    guarantee_in_words,
)
from trafficdp.model import NeighbouringRelation


@pytest.mark.parametrize("relation", list(NeighbouringRelation))
def test_every_relation_has_its_words(relation):
    assert PROTECTED[relation]
    assert NOT_PROTECTED[relation]
    assert BIN_LIST[relation]
    assert COUNTS_REVEALED[relation]
    assert "epsilon = 1)" in guarantee_in_words(relation, "1")


def test_under_public_counts_the_words_admit_that_trips_are_not_protected():
    words = " ".join(NOT_PROTECTED[NeighbouringRelation.REPLACE_USER_VALUES])
    assert "where and when it drove" in words
    assert "reveal how often" in COUNTS_REVEALED[NeighbouringRelation.REPLACE_USER_VALUES]


@pytest.mark.parametrize(
    ("epsilon", "right"),
    [("0.1", "53 %"), (1, "74 %"), (6, "99.76 %"), (10, "99.9955 %"), (25, "always"), (10**6, "always")],
)
def test_how_often_a_guess_is_right_is_rounded_up_however_large_epsilon_is(epsilon, right):
    words = guarantee_in_words(NeighbouringRelation.REPLACE_USER_VALUES, str(epsilon))
    assert f" {right}" in words
    stated = re.search(r"at most ([\d.]+) %", words)
    if stated:
        exact = Fraction(100) / (1 + Fraction(math.exp(-float(epsilon))))
        assert exact <= Fraction(stated[1]) < exact + (100 - exact) / 10


def test_the_words_of_rho_count_delta():
    words = guarantee_in_words(NeighbouringRelation.REPLACE_USER_VALUES, "1", rho="0.5", delta="0.1")
    # (e + 0.1) / (1 + e)
    assert "at most 76 % of the time" in words
    assert "(rho = 0.5, and so epsilon = 1 at delta = 0.1)" in words
