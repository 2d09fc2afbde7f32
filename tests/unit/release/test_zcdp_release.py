"""A store that counts in rho, from the configuration to `verify`, exports and SQL; kinds never mix."""

import json
from fractions import Fraction
from importlib.resources import files

import duckdb
import jsonschema
import numpy as np
import pandas as pd
import pytest
from small_city import EPSILON, FILES, failed

from trafficdp import workspace
from trafficdp.cli.main import run as command_line
from trafficdp.errors import ConfigError, InsufficientBudgetError, StoreDamagedError, UsageError
from trafficdp.export.files.manifest import SCHEMA, validate_manifest
from trafficdp.mechanisms.per_statistic_map import mechanisms_of
from trafficdp.privacy.conversion import zcdp_to_approx
from trafficdp.privacy.loss import ZCDP, LossKind, PureDP, decimal_text
from trafficdp.release import curator

pytestmark = pytest.mark.usefixtures("two_cities", "tables_alone")

PICO = 10**12
PLANS = [each.name for each in mechanisms_of(LossKind.ZCDP) if each.name != "gaussian_twin"]


def configure(city, mechanism=None, statistics='"mean", "variance"', rho="3", budget="8"):
    """Write a configuration in rho; return the workspace, its store made if there is none."""
    city.open(statistics=statistics)
    text = city.config.read_text(encoding="utf-8")
    for old, new in (
        ("epsilon = 8", f"rho = {rho}\naccept_weak_promise = true"),
        ("epsilon_per_vehicle = 20", f'kind = "zcdp"\nrho_per_vehicle = {budget}\ndelta = 1e-6'),
        ('accounting = "best"\n', ""),
        ("[map]", f'[map]\nmechanism = "{mechanism or "gaussian_twin"}"'),
    ):
        assert old in text
        text = text.replace(old, new)
    city.config.write_text(text, encoding="utf-8")
    return workspace.open_workspace(city.config)


def fill(city, released):
    configure(city).ingest([city.days[1]])
    if released:
        workspace.open_workspace(city.config).release(again=True, force=True)


@pytest.fixture
def concentrated(prepared):
    """A city whose store counts in rho, with the first day in it."""
    return prepared(fill, False)[0]


@pytest.fixture
def published(prepared):
    """The same with one release, r0001."""
    return prepared(fill, True)[0]


def manifest_of(city, release="r0001"):
    return city.store / "releases" / release / "manifest.json"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_gaussian_map_is_planned_released_verified_and_read(concentrated, small_city):
    here = workspace.open_workspace(concentrated.config)
    planned = here.plan()
    done = here.release(again=True, force=True)
    assert failed(concentrated) == {}
    charges = small_city.charges_by_plate_order(concentrated)
    largest = max(each[2] for each in charges.values())
    assert largest == planned.loss.pico
    assert 2.9 * PICO <= largest <= 3 * PICO

    document = read(manifest_of(concentrated))
    jsonschema.validate(document, json.loads(SCHEMA.read_text("utf-8")))
    guarantee = document["guarantee"]
    assert guarantee["definition"].startswith("rho-zero-concentrated")
    assert guarantee["rho"] == decimal_text(largest)
    tight = zcdp_to_approx(ZCDP(largest), "0.000001")
    assert guarantee["epsilon"] == decimal_text(tight.pico)
    assert Fraction(guarantee["delta"]) == Fraction(1, 10**6)
    assert guarantee["budget_per_vehicle"] == "8"
    assert f"rho {guarantee['rho']}" not in guarantee["in_words"]
    assert "delta" in guarantee["in_words"]
    assert document["noise"] == {
        "kind": "mechanism",
        "mechanisms": {"mean": "gaussian_twin", "variance": "gaussian_twin"},
        "settings": {"mean": [], "variance": []},
    }
    assert [each["share"] for each in document["mechanisms"]] == [0.5, 0.5]
    # the waist holds all of it
    assert not [each for each in document["mechanisms"] if "unenforced" in each]
    parameters = document["registry"]["deployment"]["privacy_loss"]["privacy_parameters"]
    assert parameters == {
        "rho": float(guarantee["rho"]),
        "epsilon": float(guarantee["epsilon"]),
        "delta": 1e-6,
    }
    cells = pd.read_parquet(done.folder / "mechanism.parquet")
    assert set(cells["speed_mean_rho"].dropna()) == {1.5}
    numbered = cells["speed_mean_status"] != "withheld"
    assert cells.loc[numbered, "speed_mean_rho"].notna().all()


def test_a_second_release_adds_up_in_rho_and_is_told_in_epsilon(concentrated):
    here = workspace.open_workspace(concentrated.config)
    here.release("1", force=True)
    here.release("2", force=True)
    first, second = (read(manifest_of(concentrated, name))["guarantee"] for name in ("r0001", "r0002"))
    total = Fraction(first["rho"]) + Fraction(second["rho"])
    assert Fraction(second["sum_of_maxima"]) == total
    together = zcdp_to_approx(ZCDP.at_least(total), "0.000001")
    assert second["epsilon_of_sum"] == decimal_text(together.pico)
    # less than the sum of both epsilons, at one delta instead of two
    assert Fraction(second["epsilon_of_sum"]) < Fraction(first["epsilon"]) + Fraction(second["epsilon"])
    assert failed(concentrated, "r0002") == {}
    status = here.status()
    assert status.quantity == "rho"
    assert status.largest_spent.exact <= total
    assert status.epsilon_in_words.endswith("at delta 0.000001")
    with duckdb.connect(str(concentrated.released), read_only=True) as connection:
        (row,) = connection.execute(
            "SELECT releases, sum_of_epsilons, budget_per_vehicle FROM budget"
        ).fetchall()
        told = connection.execute("SELECT epsilon FROM releases WHERE release_id = 'r0001'").fetchone()
    assert (row[0], row[1], row[2]) == (2, None, 8)
    assert Fraction(told[0]) == Fraction(first["epsilon"])


@pytest.mark.parametrize("name", PLANS)
def test_plan_and_iome_are_released_when_forced_and_claim_no_interval(concentrated, name):
    here = configure(concentrated, name)
    done = here.release(force=True)
    assert failed(concentrated) == {}
    assert [each.value for each in done.release.estimates] == ["mean", "variance"]
    for statistic, estimate in done.release.estimates.items():
        numbered = ~np.isnan(estimate.value)
        assert numbered.any()
        assert np.all(estimate.low[numbered] == 0)
        assert np.all(estimate.high[numbered] == statistic.largest(done.release.request.bound.upper))
        assert set(estimate.status[numbered]) == {"uninformative"}
    manifest = read(manifest_of(concentrated))
    foreseen = json.loads(concentrated.kept("allocation"))["disclosure"]["coverage"]["bins"]
    assert manifest["coverage"]["bins"] == foreseen
    assert (foreseen["released"], foreseen["uninformative"]) == (0, int(numbered.sum()))
    for mechanism in manifest["mechanisms"]:
        assert mechanism["mechanism"] == name
        assert "whole range" in mechanism["interval_basis"]


def test_the_budget_is_enforced_in_rho_before_anything_is_written(concentrated):
    here = workspace.open_workspace(concentrated.config)
    here.release("6", force=True)
    before = concentrated.dump()
    with pytest.raises(InsufficientBudgetError, match="rho"):
        here.release("3", force=True)
    assert concentrated.dump() == before
    here.release("2", force=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["guarantee"].update(rho="1"),
        lambda d: d["guarantee"].update(epsilon="1"),
        lambda d: d["guarantee"].update(delta="0.1"),
        lambda d: d["guarantee"].pop("rho"),
        lambda d: d["guarantee"].update(epsilon_of_sum="0.5"),
        lambda d: d["noise"]["mechanisms"].update(mean="plan"),
        lambda d: d["noise"].update(kind="lattice"),
    ],
)
def test_a_tampered_manifest_is_caught_by_more_than_its_hash(published, change):
    path = manifest_of(published)
    document = read(path)
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    found = failed(published)
    assert len(found.keys() - {FILES}) >= 1


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_published_rho_that_was_changed_is_caught(published, factor):
    path = published.store / "releases" / "r0001" / "mechanism.parquet"
    cells = pd.read_parquet(path)
    cells["speed_mean_rho"] *= factor
    cells.to_parquet(path)
    assert EPSILON in failed(published, only=[EPSILON])


def test_a_manifest_whose_epsilon_is_not_the_conversion_is_refused(published):
    document = read(manifest_of(published))
    validate_manifest(document)
    document["guarantee"]["epsilon"] = "1"
    with pytest.raises(Exception, match="contradicts itself"):
        validate_manifest(document)


def test_a_store_keeps_its_kind(concentrated, filled):
    # a store in rho is not opened under a budget in epsilon, nor the other way round
    concentrated.open(statistics='"mean"')
    with pytest.raises(UsageError, match="kind of loss: epsilon; expected kind of loss: rho"):
        workspace.open_workspace(concentrated.config).status()
    pure = configure(filled)
    for call in (pure.status, pure.plan, pure.release, pure.ledger):
        with pytest.raises(UsageError, match="kind of loss: rho; expected kind of loss: epsilon"):
            call()


def test_a_store_whose_kind_was_taken_away_does_not_become_pure(concentrated):
    workspace.open_workspace(concentrated.config).release("1", force=True)
    promise = 'entry LIKE \'%"kind":"promise"%\''
    concentrated.sql(f"UPDATE ledger SET entry = replace(entry, 'zcdp', 'pure') WHERE {promise}")
    with pytest.raises(StoreDamagedError, match="chain is broken"):
        concentrated.open(statistics='"mean"').status()
    concentrated.sql(f"DELETE FROM ledger WHERE {promise}")
    with pytest.raises(StoreDamagedError, match="does not say what the store promises"):
        concentrated.open(statistics='"mean"').status()


def test_what_only_pure_epsilon_can_do_is_refused_in_a_store_of_rho(concentrated):
    here = workspace.open_workspace(concentrated.config)
    for call in (here.plan, here.release):
        with pytest.raises(UsageError, match="in rho"):
            call(PureDP.of(1))
    for mechanism in ("huber", "baseline"):
        with pytest.raises(UsageError, match="unknown zCDP mechanism"):
            here.with_map(mechanism=mechanism)
    with pytest.raises(UsageError, match="unknown zCDP mechanism"):
        here.release(allow_idealised_noise="huber", force=True)


def test_a_pure_store_has_no_rho(filled):
    here = workspace.open_workspace(filled.config)
    with pytest.raises(UsageError, match="in epsilon"):
        here.plan(ZCDP.of(1))


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("delta = 1e-6", "", "delta"),
        ("delta = 1e-6", "delta = 1", "delta"),
        ("rho = 3", "epsilon = 3", "epsilon"),
        ("rho_per_vehicle = 8", "epsilon_per_vehicle = 8", "epsilon_per_vehicle"),
        ('kind = "zcdp"', 'kind = "pure"', "rho_per_vehicle"),
        ('kind = "zcdp"', 'kind = "renyi"', "kind"),
        ('mechanism = "gaussian_twin"', 'mechanism = "huber"', "mechanism"),
        ("[map]", '[map]\naccounting = "exact"', "accounting"),
    ],
)
def test_a_configuration_that_mixes_kinds_is_refused(concentrated, old, new, key):
    text = concentrated.config.read_text(encoding="utf-8")
    assert old in text
    concentrated.config.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=key):
        workspace.open_workspace(concentrated.config)


@pytest.mark.parametrize(
    "boundary",
    # tests/crash dies at all of them under a pure loss; drawn values that are not committed leave what a
    # charge leaves
    [
        pytest.param(name, marks=() if name in ("values drawn", "values committed") else pytest.mark.prove)
        for name in curator.BOUNDARIES
    ],
)
def test_a_crash_costs_one_charge_and_never_draws_twice(concentrated, boundary, monkeypatch):
    here = workspace.open_workspace(concentrated.config)

    def die(name):
        if name == boundary:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(curator, "failpoint", die)
        with pytest.raises(KeyboardInterrupt):
            here.release(again=True, force=True)
    again = here.release(again=True, force=True) if boundary != "published" else here.map("r0001")
    assert again.id == "r0001"
    assert [row.facts["kind"] for row in here.ledger()] == ["promise", "charge", "publication"]
    assert failed(concentrated) == {}


def test_every_export_takes_a_map_in_rho(concentrated, tmp_path):
    here = workspace.open_workspace(concentrated.config)
    here.release(again=True, force=True)
    for format in ("geojson", "csv", "geoparquet", "gpkg", "html", "registry"):
        path = here.export("r0001", format, tmp_path / f"map.{format}")
        assert path.stat().st_size > 0, format
        if format == "geojson":
            text = path.read_text(encoding="utf-8")
            assert '"rho"' in text
            assert '"delta"' in text


def test_the_page_for_the_city_says_rho_and_never_adds_epsilons(concentrated, tmp_path):
    here = workspace.open_workspace(concentrated.config)
    here.release(again=True, force=True)
    page = here.city_report("r0001", tmp_path / "page.html").read_text(encoding="utf-8")
    assert "the sum is rho" in page
    assert "the sum is epsilon" not in page
    assert "at delta 0.000001" in page


def schema(name):
    return json.loads(files("trafficdp.cli").joinpath(f"schemas/{name}.schema.json").read_text("utf-8"))


@pytest.fixture
def run(capsys):
    """``run(city, "plan")``: a command in this process; returns its code, output and errors."""

    def run(city, *arguments):
        capsys.readouterr()
        code = command_line(["--config", str(city.config), *arguments])
        return code, *capsys.readouterr()

    return run


def test_the_commands_speak_of_rho(concentrated, run):
    code, out, err = run(concentrated, "plan", "--rho", "2")
    assert code == 0, err
    assert "costs a vehicle at most rho" in out
    assert "at delta 0.000001" in out
    exact = json.loads(run(concentrated, "--json", "plan", "--rho", "2")[1])
    jsonschema.validate(exact, schema("plan"))
    code, out, err = run(concentrated, "release", "--yes", "--rho", "2", "--force")
    assert code == 0, err
    assert "for rho" in out
    code, _, err = run(concentrated, "release", "--yes", "--epsilon", "2")
    assert code == 2
    assert "rho" in err
    assert run(concentrated, "release", "--yes", "--rho", "7")[0] == 3
    document = json.loads(run(concentrated, "--json", "ledger")[1])
    jsonschema.validate(document, schema("ledger"))
    assert document["quantity"] == "rho"
    for command in ("status", "ledger", "releases"):
        code, out, err = run(concentrated, command)
        assert code == 0, err
        assert "rho" in out


def test_mechanisms_are_compared_in_rho_and_nothing_is_spent(concentrated, run):
    before = concentrated.dump()
    code, out, err = run(concentrated, "--json", "compare", "--rho", "2")
    assert code == 0, err
    found = json.loads(out)
    jsonschema.validate(found, schema("compare"))
    assert (found["epsilon"], found["rho"]) == (None, "2")
    for each in found["statistics"]:
        offers = {offer["mechanism"]: offer for offer in each["mechanisms"]}
        assert list(offers) == [
            m.name for m in mechanisms_of(LossKind.ZCDP) if each["statistic"] in m.statistics
        ]
        for offer in offers.values():
            assert 0 < float(offer["loss"]) <= 2
            # some forty tries: near a bound that is attained their mean may lie above it
            assert 0 < offer["simulated_error"] <= 1.3 * offer["worst_error"]
        # of PLAN counts prove nothing
        if each["statistic"] == "mean":
            assert each["best"] == "gaussian_twin"
            assert offers["gaussian_twin"]["worst_error"] < offers["plan"]["worst_error"]
    code, _, err = run(concentrated, "compare", "--epsilon", "2")
    assert code == 2
    assert "rho" in err
    code, out, err = run(concentrated, "compare")
    assert code == 0, err
    assert "at rho 3" in out
    assert "two simulated cities" in out
    assert concentrated.dump() == before


def test_a_half_width_and_what_all_can_pay_are_found_in_rho_and_a_plan_is_kept(concentrated):
    here = workspace.open_workspace(concentrated.config)
    wide = here.plan("1").precision.median
    found = here.plan(max_half_width=wide / 2)
    # noise falls by the root of rho
    assert isinstance(found.answer.median_loss, ZCDP)
    assert float(found.loss.exact) == pytest.approx(4, rel=0.1)
    assert found.precision.median <= wide / 2
    here.release("6", force=True)
    rest = here.plan("3", within_budget=True, save="rest")
    assert (rest.asked, rest.affordable.short) == (ZCDP.of(3), 0)
    assert 0 < rest.loss.exact <= 2 + Fraction(1, 10**6)
    done = here.release(plan="rest", force=True)
    assert done.release.disclosure.guarantee.rho == str(rest.loss)
    assert failed(concentrated, "r0002") == {}


def test_auto_takes_a_mechanism_of_rho(concentrated):
    found = configure(concentrated, "auto").plan()
    assert found.allocation.event.kind is LossKind.ZCDP
    assert {*found.allocation.considered} == {"partial_pooling", "flat"}
    assert found.allocation.event.mechanism in found.allocation.considered
    assert "simulated cities" in found.allocation.reason


def test_what_is_about_accountings_is_refused_in_rho(concentrated, run, tmp_path):
    for option in (("--chart", str(tmp_path / "chart.svg")), ("--every-accounting", "1")):
        code, _, err = run(concentrated, "plan", *option)
        assert code == 2
        assert "rho" in err


def test_a_pure_store_promises_epsilon(released):
    here = released.open()
    assert here.status().quantity == "epsilon"
    promise, charge, *_ = here.ledger()
    assert promise.facts["loss_kind"] == "pure"
    assert "epsilon_pico" in charge.facts
    assert all(check.passed for check in here.verify("r0001"))
    assert "rho" not in read(manifest_of(released))["guarantee"]
