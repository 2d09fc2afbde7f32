"""`trafficdp audit`: claimed epsilon and lower bound, without a store; mistakes are reported as caught."""

import json
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

from trafficdp.audit.wrong import mistakes
from trafficdp.cli.commands import audit as audit_module
from trafficdp.cli.commands.audit import BOUND, slug
from trafficdp.mechanisms.laplace.calibrated import Baseline

pytestmark = pytest.mark.slow

SCHEMA = json.loads((files("trafficdp.cli") / "schemas" / "audit.schema.json").read_text())
MISTAKES = [slug(mistake.name) for mistake in mistakes(BOUND)]


@pytest.fixture
def audited(command, tmp_path, monkeypatch):
    """``audited("baseline")``: the findings, run in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def audited(*arguments):
        result = command("--json", "audit", *arguments)
        assert (result.code, result.err) == (0, "")
        jsonschema.validate(result.json, SCHEMA)
        assert list(tmp_path.iterdir()) == []
        return result.json["findings"]

    return audited


def test_one_mechanism_gives_a_finding_a_statistic(audited):
    found = audited("baseline", "--draws", "20000")
    assert [finding["statistic"] for finding in found] == ["mean", "variance", "vehicle_mean"]
    for finding in found:
        assert 0.4 < finding["lower_bound"] <= finding["claim"] == 1
        assert (finding["draws"], finding["confidence"], finding["verdict"]) == (20_000, 0.999, "keeps")


def test_the_claim_the_confidence_and_the_seed_are_those_given(audited):
    given = ("baseline", "--epsilon", "2", "--confidence", "0.9", "--draws", "2000", "--seed")
    first, again, other = audited(*given, "5"), audited(*given, "5"), audited(*given, "6")
    assert first == again != other
    assert {(each["claim"], each["confidence"], each["draws"]) for each in first} == {(2, 0.9, 2000)}


def test_any_confidence_below_1_has_a_bound(audited):
    (finding,) = audited(MISTAKES[0], "--draws", "100", "--confidence", "0.9999999999999999")
    assert finding["lower_bound"] == 0


def test_a_zcdp_mechanism_is_held_to_its_epsilon_at_delta(audited):
    found = audited("gaussian_twin", "--draws", "20000")
    assert [finding["statistic"] for finding in found] == ["mean", "variance", "vehicle_mean"]
    for finding in found:
        assert finding["delta"] == 0.01
        # rho = 1/2 implies less at this delta than the simple formula says
        assert 2.7 < finding["claim"] < 3.5
        assert finding["verdict"] == "keeps"
        # what no draws could show is nearly 2: this delta is large
        assert finding["lower_bound"] > 1.2


def test_a_release_s_own_noise_can_be_audited(audited):
    found = audited("pooled", "--secure", "--draws", "500")
    assert all(finding["verdict"] == "keeps" for finding in found)


def test_what_is_wrong_on_purpose_is_caught(audited):
    """That each is: `tests/audit/test_mechanisms.py`."""
    (finding,) = audited(MISTAKES[0], "--draws", "40000")
    assert finding["verdict"] == "caught"
    assert finding["wrong_on_purpose"]
    assert finding["lower_bound"] > finding["claim"]


def test_too_few_draws_catch_nothing_and_say_so(audited, command):
    (finding,) = audited(MISTAKES[0], "--draws", "100")
    assert finding["verdict"] == "not_caught"
    out = command("audit", MISTAKES[0], "--draws", "100").out
    assert "not caught: wrong on purpose, but these draws are too few" in out


def test_people_see_claim_bound_draws_and_confidence(command):
    out = command("audit", MISTAKES[0]).out
    for word in (MISTAKES[0], "CAUGHT", "20,000", "0.999", "claimed", "at least"):
        assert word in out
    assert "A bound below the claim does not prove it" in out


def test_a_refuted_claim_is_shown_and_ends_with_exit_code_4(command, monkeypatch):
    class Half(Baseline):
        """Draws at twice the epsilon that it is given."""

        name = "half"

        def estimate(self, samples, statistic, epsilon, noise):
            return super().estimate(samples, statistic, 2 * np.asarray(epsilon), noise)

    monkeypatch.setattr(audit_module, "MECHANISMS", (Half(),))
    result = command("audit", "half")
    assert result.code == 4
    assert "REFUTED" in result.out
    assert result.err.startswith("trafficdp: an epsilon is refuted; got half")


def test_wrong_calls_are_one_line(refusal):
    assert "which mechanism?" in refusal(2, "audit")
    assert "which mechanism?" in refusal(2, "audit", "baseline", "--all")
    message = refusal(2, "audit", "perfect")
    assert "unknown mechanism" in message
    assert "half_the_scale" in message
    for option in (("--epsilon", "0"), ("--confidence", "1"), ("--draws", "3"), ("--seed", "-1")):
        refusal(2, "audit", "baseline", *option)
