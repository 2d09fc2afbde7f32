from __future__ import annotations

import pytest

from trafficdp.export.files.words import (
    BIN_LIST,
    COUNTS_REVEALED,
    NOT_PROTECTED,
    PROTECTED,
    guarantee_in_words,
)
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.privacy.loss import PureDP


@pytest.mark.parametrize("relation", list(NeighbouringRelation))
def test_every_relation_has_its_words(relation):
    assert PROTECTED[relation]
    assert NOT_PROTECTED[relation]
    assert BIN_LIST[relation]
    assert COUNTS_REVEALED[relation]
    assert "epsilon = 1)" in guarantee_in_words(relation, PureDP.of(1))


def test_under_public_counts_the_words_admit_that_trips_are_not_protected():
    words = " ".join(NOT_PROTECTED[NeighbouringRelation.REPLACE_USER_VALUES])
    assert "where and when it drove" in words
    assert "reveal how often" in COUNTS_REVEALED[NeighbouringRelation.REPLACE_USER_VALUES]


@pytest.mark.parametrize(
    ("epsilon", "factor"), [(1, "2.72"), (25, "10 to the power of 11"), (10**6, "434295")]
)
def test_the_factor_is_rounded_up_however_large(epsilon, factor):
    words = guarantee_in_words(NeighbouringRelation.REPLACE_USER_VALUES, PureDP.of(epsilon))
    assert f"at most {factor}" in words or f"power of {factor} " in words
