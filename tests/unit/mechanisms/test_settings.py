"""What a mechanism is set to can be written down, and leads back to the very same mechanism."""

import json

import numpy as np
import pytest

from trafficdp.bounding.arrays import CountCap
from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.arrays import Grouping, Levy, Pooled
from trafficdp.mechanisms.per_statistic.plan import PlanMechanism, Scaling
from trafficdp.mechanisms.per_statistic.two_stage import TwoStage
from trafficdp.mechanisms.per_statistic_map import in_words, mechanisms_of, settings_of, with_settings
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.mechanisms.two_moments import KnownTwoMoments
from trafficdp.model import Statistic
from trafficdp.privacy.loss import LossKind


def levy(**settings):
    return KnownTwoMoments(Levy(Grouping.BEST_FIT, **settings))


@pytest.mark.parametrize(
    "mechanism", [*mechanisms_of(LossKind.PURE), *mechanisms_of(LossKind.ZCDP)], ids=lambda each: each.name
)
def test_settings_are_plain_json_and_lead_back_to_the_mechanism(mechanism):
    written = json.loads(json.dumps(settings_of(mechanism), allow_nan=False))
    assert list(written) == sorted(written)
    assert with_settings(mechanism, written) == mechanism


def test_settings_that_are_not_those_of_today_are_restored():
    today, then = levy(), levy(cap=CountCap.MEDIAN, gamma=0.05, halves=5, guaranteed=True)
    written = settings_of(then)
    assert written == {
        "cap": "median",
        "gamma": 0.05,
        "grouping": "best_fit",
        "guaranteed": True,
        "halves": 5,
    }
    assert with_settings(today, written) == then
    stage = KnownTwoMoments(TwoStage(spread=0.25, half_width=2))
    assert with_settings(KnownTwoMoments(TwoStage()), settings_of(stage)) == stage
    assert in_words({"cap": "median", "halves": 3}) == "cap median, halves 3"


@pytest.mark.parametrize(
    ("mechanism", "settings", "message"),
    [
        (Pooled(), {"cap": "argmax", "wishes": 1}, "does not know; got wishes; expected cap"),
        (Pooled(), {"cap": "largest"}, "cap=largest"),
        (Pooled(), {"cap": 3}, "cap=3"),
        (levy(), {"halves": 3.5}, r"halves=3\.5"),
        (levy(), {"halves": 4}, "halves"),
        (levy(), {"halves": True}, "halves=True"),
        (levy(), {"gamma": float("nan")}, "gamma=nan"),
        (levy(), {"gamma": None}, "gamma=None"),
        (levy(), {"guaranteed": 1}, "guaranteed=1"),
        (levy(), {"grouping": "wrap_around"}, "make another mechanism"),
        (PlanMechanism(Scaling.PRIVATE), {"power": 1}, "make another mechanism"),
    ],
)
def test_settings_of_no_known_mechanism_are_refused_in_words(mechanism, settings, message):
    with pytest.raises(UsageError, match=message):
        with_settings(mechanism, settings)


@pytest.mark.parametrize("kind", LossKind)
def test_settings_are_published_once_of_every_mechanism(kind, counts_of, bound_of):
    name, value, amount = ("plan", 0.5, "rho") if kind is LossKind.ZCDP else ("pooled", [0.5], "epsilon")
    part = {"mechanism": name, "settings": {}, amount: value}
    public = PublicFacts(counts_of([[1, 2]]), bound_of(60))
    calibrated = calibrated_from_facts({"kind": "mechanism", "loss": kind, "parts": {"mean": part}}, public)
    frozen, published = calibrated.to_facts(), calibrated.manifest_facts()
    assert frozen["parts"]["mean"]["settings"] == settings_of(calibrated.mechanisms[Statistic.MEAN]) != {}
    columns = {Statistic.MEAN: {amount: np.array([0.5])}}
    assert calibrated_from_facts(published, public, columns).to_facts() == frozen
    without = {key: each for key, each in published.items() if key != "settings"}
    twice = {**published, "settings": {"mean": [{"name": "cap", "value": "argmax"}] * 2}}
    for wrong in (without, twice):
        with pytest.raises(UsageError, match="once"):
            calibrated_from_facts(wrong, public, columns)
