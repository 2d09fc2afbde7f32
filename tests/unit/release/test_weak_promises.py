"""A promise that hardly protects anybody is refused unless it is accepted, and then every release says so."""

import json
from fractions import Fraction

import pytest

import trafficdp
from trafficdp.errors import ConfigError, DataError
from trafficdp.export.files.manifest import validate_manifest
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy import budget
from trafficdp.privacy.budget import BudgetPolicy, weaknesses
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.loss import PICO, ZCDP, PureDP

pytestmark = pytest.mark.usefixtures("two_cities")

HIDES = NeighbouringRelation.ADD_OR_REMOVE_USER
EPSILON, DELTA, MANY = "larger than 20", "larger than 0.0001", "larger than one divided by the number"


def words(policy, vehicles=None):
    """Which of the three weaknesses are told, in order."""
    told = weaknesses(policy, vehicles)
    return [next(each for each in (EPSILON, DELTA, MANY) if each in sentence) for sentence in told]


def test_more_than_epsilon_20_is_weak_whatever_the_number_of_vehicles():
    assert words(BudgetPolicy(PureDP.of(20)), 10**9) == []
    assert words(BudgetPolicy(PureDP(20 * PICO + 1)), 1) == [EPSILON]
    # a ceiling of a year does not end the loss
    assert words(BudgetPolicy(PureDP.of(21), PureDP.of(1))) == [EPSILON]


@pytest.mark.parametrize(
    ("delta", "vehicles", "told"),
    [
        ("0.0001", None, []),
        ("0.0001", 10_000, []),
        ("0.0001", 10_001, [MANY]),
        ("0.000101", None, [DELTA]),
        ("0.000101", 10_000, [DELTA, MANY]),
        ("1e-6", 1_000_000, []),
        ("1e-6", 1_000_001, [MANY]),
    ],
)
def test_delta_is_compared_with_the_number_of_vehicles_where_it_is_known(delta, vehicles, told):
    assert words(BudgetPolicy(ZCDP.of(1), delta=delta), vehicles) == told
    assert words(BudgetPolicy(ZCDP.of(1), delta=delta, relation=HIDES), vehicles) == told


def test_a_budget_in_rho_is_judged_by_its_epsilon():
    assert words(BudgetPolicy(ZCDP.of(5), delta="1e-6")) == [EPSILON]
    assert words(BudgetPolicy(ZCDP.of("2.5"), delta="1e-6")) == []


@pytest.mark.parametrize("delta", ["1e-4", "3.7e-7", "1e-12"])
def test_epsilon_20_at_a_delta_is_not_refused_for_the_rounding_of_rho(delta):
    rho = approx_to_rho(ApproxDP(20 * PICO, Fraction(delta)), HIDES)
    assert words(BudgetPolicy(rho, delta=delta, relation=HIDES)) == []
    above = approx_to_rho(ApproxDP(21 * PICO, Fraction(delta)), HIDES)
    assert words(BudgetPolicy(above, delta=delta, relation=HIDES)) == [EPSILON]


def changed(city, *pairs):
    """Edit the configuration of ``city``."""
    text = city.config.read_text(encoding="utf-8")
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    city.config.write_text(text, encoding="utf-8")


ACCEPT = ("[privacy]\n", "[privacy]\naccept_weak_promise = true\n")


@pytest.mark.parametrize(
    ("hidden", "pairs", "told"),
    [
        (False, [("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 20.000000000001")], EPSILON),
        (True, [("\nepsilon = 9", "\nepsilon = 21")], EPSILON),
        (True, [("delta = 1e-6", "delta = 2e-4"), ("fleet = 120", "fleet = 5000")], DELTA),
        (True, [("fleet = 120", "fleet = 1000001")], MANY),
    ],
)
def test_a_weak_promise_is_refused_before_anything_is_done(small_city, tmp_path, hidden, pairs, told):
    city = small_city.City(tmp_path)
    if hidden:
        small_city.write_hidden(city.folder, delta="delta = 1e-6\n")
    changed(city, *pairs)
    with pytest.raises(ConfigError, match="the promise to vehicles is weak") as caught:
        city.open()
    said = str(caught.value)
    assert told in said
    assert said.count("larger than") == 1
    assert "set accept_weak_promise = true in [privacy]" in said
    assert not (city.folder / "city.store").exists()
    changed(city, ACCEPT)
    city.open()


def test_only_true_and_false_accept_it(small_city, tmp_path):
    city = small_city.City(tmp_path)
    changed(city, (ACCEPT[0], '[privacy]\naccept_weak_promise = "yes"\n'))
    with pytest.raises(ConfigError, match=r"accept_weak_promise is not valid.*expected true or false"):
        trafficdp.open(city.config)


@pytest.mark.parametrize(("delta", "refused"), [("0.09", False), ("0.1", True)])
def test_the_vehicles_of_public_counts_are_compared_when_a_map_is_planned(
    small_city, tmp_path, monkeypatch, delta, refused
):
    """11 vehicles are counted on the first day: only a delta that is weak by itself is too large for them."""
    monkeypatch.setattr(budget, "LARGEST_DELTA", "1")
    city = small_city.City(tmp_path)
    changed(
        city,
        ("epsilon = 8", "rho = 3"),
        ("epsilon_per_vehicle = 20", f'kind = "zcdp"\nrho_per_vehicle = 4\ndelta = {delta}'),
        ('accounting = "best"\n', ""),
    )
    workspace = city.open()
    workspace.ingest([city.days[1]])
    before = city.dump()
    for act in (workspace.plan, lambda: workspace.release(force=True)):
        if refused:
            with pytest.raises(ConfigError, match=MANY):
                act()
        else:
            act()
    if refused:
        assert city.dump() == before
        changed(city, ACCEPT)
        trafficdp.open(city.config).release(force=True)
    (stated,) = manifests(city)
    assert [MANY in each for each in stated["honesty"].get("weaknesses", [])] == [True] * refused


def manifests(city):
    """The manifests of all releases."""
    paths = sorted((city.store / "releases").glob("*/manifest.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def test_what_was_accepted_stands_red_on_page_and_report_and_in_the_manifest(small_city, tmp_path):
    city = small_city.City(tmp_path / "city")
    small_city.write_hidden(city.folder, delta="delta = 1e-6\n")
    changed(city, ACCEPT, ("\nepsilon = 9", "\nepsilon = 21"), ("fleet = 120", "fleet = 1000001"))
    workspace = city.open()
    workspace.ingest([city.days[1]])
    done = workspace.release(force=True)
    (stated,) = manifests(city)
    of_budget, delta = stated["honesty"]["weaknesses"]
    assert EPSILON in of_budget
    assert MANY in delta
    workspace.city_report(done.id, tmp_path / "report.html")
    page = (city.store / "releases" / done.id / "map.html").read_text(encoding="utf-8")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    for text in (page, report):
        assert ".warning strong{color:#b00000}" in text
        for sentence in stated["honesty"]["weaknesses"]:
            assert text.count(f'<p class="warning"><strong>Weak promise.</strong> {sentence}</p>') == 1
    assert all(check.passed for check in workspace.verify(done.id))


def test_nobody_takes_a_weakness_out_of_a_manifest_or_puts_one_in(small_city, tmp_path):
    city = small_city.City(tmp_path)
    small_city.write_hidden(city.folder, delta="delta = 1e-6\n")
    changed(city, ACCEPT, ("\nepsilon = 9", "\nepsilon = 21"))
    workspace = city.open()
    workspace.ingest([city.days[1]])
    workspace.release(force=True)
    (stated,) = manifests(city)
    validate_manifest(stated)
    for weak in ([], ["The budget is fine."], [*stated["honesty"]["weaknesses"]] * 2):
        honesty = {**stated["honesty"], "weaknesses": weak}
        with pytest.raises(DataError, match=r"contradicts itself at \$\.honesty\.weaknesses"):
            validate_manifest({**stated, "honesty": honesty})
