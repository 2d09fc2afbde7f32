from __future__ import annotations

from trafficdp.export.files.tables import column_facts
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import published_frame


def test_every_published_column_is_explained_in_its_order(any_release):
    facts = column_facts(any_release)
    assert list(facts) == list(published_frame(any_release).columns)
    assert all(each.description for each in facts.values())


def test_numbers_of_speed_carry_their_unit(city):
    facts = column_facts(city)
    assert facts["speed_mean_kmh_low"].unit == "km/h"
    assert facts["speed_variance_kmh2_noise_scale"].unit == "(km/h)²"


def test_all_statuses_are_named(city):
    assert all(status.value in column_facts(city)["status"].description for status in BinStatus)
