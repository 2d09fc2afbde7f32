"""`[map] mechanism`: one word for all statistics or one for each, and never an idealised one."""

import dataclasses

import pytest

from trafficdp.config.map import with_accounting, with_mechanism
from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic_map import mechanisms_of
from trafficdp.model import Statistic
from trafficdp.privacy.loss import LossKind, PureDP

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE


def configured(load, minimal, **settings):
    return load({**minimal, "map": {**minimal["map"], **settings}})


def test_left_out_it_is_auto_and_beside_an_accounting_the_baseline(load, minimal):
    named = configured(load, minimal, accounting="best")
    assert named.map.mechanism == {MEAN: "baseline", VARIANCE: "baseline"}
    config = load(minimal)
    assert config.map.mechanism == {MEAN: "auto", VARIANCE: "auto"}
    assert with_accounting(config.map, "exact", LossKind.PURE).mechanism == named.map.mechanism
    request = config.request(PureDP.of(1))
    assert request.mechanism == config.map.mechanism
    assert request.simulate
    assert not request.allow_idealised


@pytest.mark.parametrize("word", ["auto", "baseline", "pooled", "akmv"])
def test_one_word_is_for_all_statistics(word, load, minimal):
    config = configured(load, minimal, mechanism=word)
    assert config.map.mechanism == {MEAN: word, VARIANCE: word}


def test_a_table_names_one_for_each_and_leaves_the_rest_to_auto(load, minimal):
    config = configured(load, minimal, mechanism={"mean": "levy_best_fit"})
    assert config.map.mechanism == {MEAN: "levy_best_fit", VARIANCE: "auto"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mechanism": "akvm"}, ["[map] mechanism", '"akmv"']),
        ({"mechanism": 3}, ["[map] mechanism"]),
        ({"mechanism": ["auto"]}, ["[map] mechanism"]),
        ({"mechanism": {"mean": "guess"}}, ["[map] mechanism.mean", '"auto"']),
        ({"mechanism": {"median": "auto"}}, ["unknown key [map] mechanism.median"]),
        (
            {"mechanism": "pooled", "statistics": ["vehicle_mean"]},
            ["[map] mechanism", "cannot estimate the vehicle mean", "two_stage"],
        ),
        (
            {"mechanism": {"vehicle_mean": "pooled"}, "statistics": ["vehicle_mean"]},
            ["mechanism.vehicle_mean", "cannot estimate the vehicle mean"],
        ),
        ({"mechanism": "auto", "accounting": "exact"}, ["[map] accounting", 'mechanism = "baseline"']),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, words, refusal, minimal):
    message = refusal({**minimal, "map": {**minimal["map"], **settings}})
    for word in words:
        assert word in message


@pytest.mark.parametrize("idealised", [each.name for each in mechanisms_of(LossKind.PURE) if each.idealised])
def test_a_file_never_reaches_idealised_noise_and_says_which_switch_does(idealised, refusal, load, minimal):
    for given in (idealised, {"mean": idealised}):
        message = refusal({**minimal, "map": {**minimal["map"], "mechanism": given}})
        assert f"trafficdp release --allow-idealised-noise {idealised}" in message
    settings = load(minimal).map
    with pytest.raises(UsageError, match="no exact sampler"):
        with_mechanism(settings, idealised, LossKind.PURE)
    allowed = with_mechanism(settings, idealised, LossKind.PURE, allow_idealised=True)
    assert allowed.allow_idealised
    assert dataclasses.replace(allowed, allow_idealised=False, mechanism=settings.mechanism) == settings


def test_no_key_of_the_file_allows_it(refusal, minimal):
    message = refusal({**minimal, "map": {**minimal["map"], "allow_idealised": True}})
    assert "unknown key [map] allow_idealised" in message
