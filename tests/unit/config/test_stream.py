"""The [stream] table: nothing is defaulted that decides what a vehicle loses."""

import pytest

from trafficdp.errors import ConfigError
from trafficdp.privacy.loss import PureDP


@pytest.fixture
def chosen(minimal, document_text):
    """A valid configuration without the table, as text."""
    return document_text(minimal)


STREAM = "\n[stream]\nepsilon = 2\npublish_every = 15\nrecords_per_vehicle = 60\n"


def test_its_values_are_read_and_its_defaults_are_those_stated(load, chosen):
    settings = load(chosen + STREAM).stream
    assert (settings.epsilon, settings.publish_every, settings.records_per_vehicle) == (PureDP.of(2), 15, 60)
    assert (settings.lateness, settings.records_per_step) == (5, 0)
    assert load(chosen).stream is None


def test_without_epsilon_it_is_that_of_privacy(load, chosen):
    assert load(chosen + STREAM.replace("epsilon = 2\n", "")).stream.epsilon is None


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("publish_every = 0", "publish_every"),
        ("publish_every = 2.5", "publish_every"),
        ("records_per_vehicle = 0", "records_per_vehicle"),
        ("lateness = -1", "lateness"),
        ("epsilon = 0", "epsilon"),
        ("epsilon = 2000000", "epsilon"),
        ("records_per_stop = 1", "records_per_step"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(load, chosen, wrong, key):
    name = wrong.partition(" = ")[0]
    kept = [line for line in STREAM.splitlines() if not line.startswith(f"{name} ")]
    with pytest.raises(ConfigError, match=key):
        load(chosen + "\n".join([*kept, wrong]) + "\n")


@pytest.mark.parametrize("name", ["publish_every", "records_per_vehicle"])
def test_what_decides_the_noise_must_be_chosen(load, chosen, name):
    kept = [line for line in STREAM.splitlines() if not line.startswith(f"{name} ")]
    with pytest.raises(ConfigError, match=rf"\[stream\] {name} is missing"):
        load(chosen + "\n".join(kept) + "\n")
