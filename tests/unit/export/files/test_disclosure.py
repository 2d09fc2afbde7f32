from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.export.files.disclosure import on_city_clocks
from trafficdp.model import SlotKind, as_json, from_json, rfc3339, zone_of
from trafficdp.privacy.disclosure import BinNumbers, Disclosure
from trafficdp.privacy.loss import exact_text


def test_it_is_read_from_json_as_it_was(any_release):
    text = json.dumps(as_json(any_release.disclosure), allow_nan=False)
    assert from_json(Disclosure, json.loads(text)) == any_release.disclosure


def test_the_largest_count_of_a_vehicle_is_told_only_with_the_counts(city, calendar):
    assert city.disclosure.bounds.records_per_vehicle_in_a_bin is None
    assert calendar.disclosure.bounds.records_per_vehicle_in_a_bin == 300


def test_sums_of_epsilon_are_exact(city):
    assert city.disclosure.guarantee.epsilon == "3.999999999999"
    assert city.disclosure.accounting.sum_of_maxima_before == "1"
    assert city.disclosure.accounting.sum_of_maxima_after == "4.999999999999"
    assert city.disclosure.accounting.left_for_every_vehicle == "3.000000000001"


def test_bins_are_counted_by_status(city):
    numbers = city.disclosure.coverage.bins
    assert numbers == BinNumbers(total=61, released=47, constant=0, withheld=9, uninformative=5)
    assert BinNumbers.of(np.array([], dtype=object)).total == 0


def test_noise_scales_are_those_of_the_published_table(city):
    from trafficdp.privacy.release import published_frame

    table = published_frame(city)
    for mechanism in city.disclosure.mechanisms:
        scale = table[f"{mechanism.statistic}_noise_scale"]
        scale = scale[scale > 0]
        assert (mechanism.noise_scale_min, mechanism.noise_scale_max) == (scale.min(), scale.max())


def test_day_parts_are_listed_only_where_they_count(city, make_release):
    import h3

    from trafficdp.privacy.release import SlotFacts

    parts = make_release(
        h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 7), 1),
        slot_kind=SlotKind.DAY_PART,
        slots={0: SlotFacts("night", None, None)},
    )
    assert city.disclosure.coverage.day_parts == ()
    assert len(parts.disclosure.coverage.day_parts) == 5


def test_times_are_told_by_the_citys_clocks():
    moment = datetime(2016, 11, 24, 20, tzinfo=timezone(timedelta(hours=-6)))
    assert rfc3339(moment, zone_of("Asia/Kolkata")) == "2016-11-25T07:30:00+05:30"
    assert on_city_clocks(moment, "Asia/Kolkata") == "2016-11-25 07:30 (Asia/Kolkata)"


def test_a_time_without_offset_is_refused():
    with pytest.raises(UsageError, match="no offset"):
        rfc3339(datetime(2016, 11, 24), zone_of("UTC"))


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(30), "30"), (Fraction(1, 10), "0.1"), (Fraction(1, 3), "1/3"), (Fraction(250, 9), "250/9")],
)
def test_bounds_are_told_exactly(value, text):
    assert exact_text(value) == text
    assert Fraction(text) == value


def test_the_promise_in_words_never_understates_what_may_be_guessed(city):
    words = city.disclosure.guarantee.in_words
    assert "at most 98.3 % of the time" in words
    assert 1 / (1 + np.exp(-3.999999999999)) <= 0.983
