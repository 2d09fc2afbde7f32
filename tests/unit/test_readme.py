"""What README and docs say is what the tool does: commands run, paths exist, numbers are recomputed."""

import inspect
import json
import math
import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import small_city

import trafficdp
from trafficdp import errors
from trafficdp.cli.main import COMMANDS
from trafficdp.cli.plan_words import plan_facts
from trafficdp.export.write import FORMATS
from trafficdp.mechanisms.per_statistic_map import MECHANISMS
from trafficdp.model import Statistic
from trafficdp.planner.request import MapSettings
from trafficdp.workspace import Workspace

ROOT = Path(trafficdp.__file__).parents[1]
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?")


@pytest.fixture
def checkout(tmp_path):
    shutil.copytree(ROOT / "data" / "sample", tmp_path / "data" / "sample")
    return tmp_path


def _run(line, folder):
    """What a line of a shell says; the tool runs in a process that need not import what this one has."""
    words = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"printf '%s\\n' {line}"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    program, *words = words.stdout.decode().splitlines()
    with (folder / "said").open("w+") as out, (folder / "complained").open("w+") as err:
        if program == "trafficdp":
            code = small_city.ended(small_city.forked(words, stdout=out.fileno(), stderr=err.fileno()))
        else:
            code = subprocess.run([program, *words], cwd=folder, stdout=out, stderr=err).returncode
        assert code == 0, err.seek(0) or err.read()
        out.seek(0)
        return out.read()


@pytest.mark.slow
def test_the_python_block_runs(pages, checkout, monkeypatch):
    (block,) = pages.blocks(pages.README, "python")
    lines = [line for line in block.splitlines() if line and not line.startswith(("from ", "import "))]
    assert len(lines) == 5
    monkeypatch.chdir(checkout)
    found = {}
    exec(block, found)
    assert len(found["hexagons"]) > 0
    assert (checkout / "tour.store" / "releases" / "r0001" / "map.geojson").is_file()


@pytest.mark.slow
def test_the_five_commands_give_a_map_and_a_manifest(pages, checkout, monkeypatch):
    (block,) = pages.blocks(pages.README, "sh")
    assert len(re.findall(r"(?m)^trafficdp ", block)) == 5
    monkeypatch.chdir(checkout)
    out = "".join(_run(line, checkout) for line in block.splitlines())
    assert "released r0001" in out
    assert "FAILED" not in out
    folder = checkout / "city.store" / "releases" / "r0001"
    layout = pages.guide("store")
    for path in folder.iterdir():
        assert path.name in layout
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["guarantee"]["epsilon"] == "6"


def test_the_readme_is_short_and_leads_to_every_page(pages):
    readme = pages.text(pages.README)
    assert len(readme.encode()) < 12_000
    linked = set(re.findall(r"\]\((docs/[\w/.-]+\.md)\)", readme))
    assert linked == {name for name in pages.names() if name.startswith("docs/")}


def test_the_make_targets_that_pages_name_exist(pages):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in pages.names():
        shown = " ".join(re.findall(r"`[^`]+`|(?m:^make \w+)", pages.text(name)))
        for target in re.findall(r"\bmake (\w+)", shown):
            assert re.search(rf"(?m)^{target}:", makefile), (name, target)


def test_the_paths_that_pages_name_exist(pages):
    for name in pages.names():
        page = pages.text(name)
        named = re.findall(r"`((?:data|docs|notebooks|pipelines|tests|trafficdp)/[^`\s]*)`", page)
        linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page)
        found = [*(ROOT / each for each in named), *((ROOT / name).parent / each for each in linked)]
        missing = [path for path in found if not list(ROOT.glob(os.path.relpath(path, ROOT)))]
        assert not missing, (name, missing)


def test_the_links_into_a_page_lead_to_a_heading(pages):
    for name in pages.names():
        for link, heading in re.findall(r"\]\(([^)#:]+)#([^)]+)\)", pages.text(name)):
            target = os.path.relpath((ROOT / name).parent / link, ROOT)
            titles = re.findall(r"(?m)^#+ (.*)$", pages.text(target))
            assert heading in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in titles}


def test_the_commands_that_the_readme_names_are_those_of_the_tool(pages):
    readme = pages.text(pages.README)
    listed = re.search(r"There are also (.*?);", readme).group(1)
    assert set(re.findall(r"`(\w+)`", listed)) | set(re.findall(r"(?m)^trafficdp (\w+)", readme)) == set(
        COMMANDS
    )


def test_the_commands_and_options_that_pages_show_are_in_the_reference(pages):
    reference = pages.text("docs/reference/cli.md")
    known = {
        title.split()[0]: set(re.findall(r"(?m)^\| `(--[\w-]+)", body))
        for title, body in re.findall(r"(?ms)^## `trafficdp (.*?)`$(.*?)(?=^## |\Z)", reference)
    }
    assert set(known) == set(COMMANDS)
    shown = [
        line
        for name in pages.names()
        for line in re.findall(
            r"`(trafficdp \w[^`\n]*)`|^(?:\w+ \| )?(trafficdp \w.*)$", pages.text(name), re.M
        )
        if not name.startswith("docs/reference/")
    ]
    assert len(shown) > 20
    for first, second in shown:
        line = (first or second).split("  ")[0]
        command = line.split()[1]
        assert set(re.findall(r" (--[a-z][\w-]*)", line)) <= known[command], line


def test_the_settings_that_pages_show_are_in_the_reference(pages):
    reference = pages.text("docs/reference/configuration.md")
    shown = [block for name in pages.names() for block in pages.blocks(name, "toml")]
    assert shown
    for block in shown:
        for table, settings in tomllib.loads(block).items():
            section = re.search(rf"(?ms)^## `\[+{table}\]+`$(.*?)(?=^## |\Z)", reference).group(1)
            known = set(re.findall(r"(?m)^\*\*`(\w+)`\*\*", section))
            for each in settings if isinstance(settings, list) else [settings]:
                assert set(each) <= known


def test_the_formats_that_the_guide_lists_are_those_that_export_writes(pages):
    table = pages.rows(pages.section("docs/guides/report-and-exports.md", "Files to load elsewhere"))[2:]
    assert [row[0].strip("`") for row in table] == list(FORMATS)


def test_the_mechanisms_that_the_guide_calls_unenforced_are_those_of_the_registry(pages):
    told = pages.section("docs/guides/which-mechanism.md", "Proved on paper only")
    (sentence,) = re.findall(r"So it is for (.*?);", told)
    patterns = re.findall(r"`([a-z_*]+)`", sentence)
    found = [{each.name for each in MECHANISMS if fnmatch(each.name, pattern)} for pattern in patterns]
    assert all(found)
    assert set().union(*found) == {each.name for each in MECHANISMS if not each.enforced}
    assert "unenforced" in pages.text(pages.README)


def test_the_exit_codes_are_those_of_the_errors(pages):
    table = pages.rows(pages.section(pages.README, "The main job in five commands"))
    codes = {int(row[0]) for row in table if row[0].isdigit()}
    family = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    assert codes == {0, 130} | {each.exit_code for each in family if issubclass(each, errors.TrafficdpError)}


def test_what_an_answer_depends_on_is_told_of_every_command_that_opens_a_store(pages):
    table = pages.rows(pages.section("docs/guides/store.md", "What an answer depends on"))[2:]
    told = [name.removeprefix("ingest ") for row in table for name in re.findall(r"`([^`]+)`", row[0])]
    assert sorted({*told} - {"--undo"}) == sorted({*COMMANDS} - {"init", "suggest", "simulate", "demo"})
    assert len(told) == len({*told})


def test_every_dependency_is_listed_with_its_reason(pages):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.match(r"[\w-]+", each).group() for each in project["dependencies"]}
    rows = pages.rows(pages.text("docs/dependencies.md"))[2:]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row[0])} == needed
    assert all(row[1] for row in rows)


def test_citation_changelog_and_bill_of_materials_are_of_this_version(pages):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.findall(r"^version: (.*)$", pages.text("CITATION.cff"), re.MULTILINE) == [version]
    assert re.findall(r"^## (\S+)", pages.text("CHANGELOG.md"), re.MULTILINE)[0] == version
    built = json.loads(pages.text("data/installs/sbom.json"))["components"]
    assert [each["version"] for each in built if each["name"] == "trafficdp"] == [version]


def test_what_is_not_protected_is_what_every_manifest_says(pages):
    from trafficdp.export.files.disclosure import NOT_PROTECTED
    from trafficdp.model import NeighbouringRelation

    section = pages.section(pages.README, "What is protected, and what is not")
    for sentence in NOT_PROTECTED[NeighbouringRelation.REPLACE_USER_VALUES]:
        first = re.split(r"[:,]", sentence)[0].rstrip(".")
        assert re.sub(r" or a company.*", "", first) in section


def _shown_in(plan, unit):
    allocation = plan.allocation
    return replace(
        plan, allocation=replace(allocation, request=replace(allocation.request, display_unit=unit))
    )


class _Austin:
    """The real city's baseline at three resolutions, as `trafficdp plan` sees it."""

    def __init__(self, city):
        self.city = city
        self.plans = {resolution: city.with_map(resolution=resolution).plan() for resolution in (7, 6, 5)}
        # the guide tells them in the unit of the speed bound
        config = city.config
        self.facts = {
            resolution: plan_facts(_shown_in(plan, config.map.bound.unit))
            for resolution, plan in self.plans.items()
        }

    def with_variances(self, resolution, tolerance):
        config = self.city.config
        tolerance = {Statistic.MEAN: 1.0, Statistic.VARIANCE: tolerance}
        both: MapSettings = replace(config.map, tolerance=tolerance)
        city = Workspace(
            replace(config, map=both), self.city.store, self.city.key_file, wait=60.0, progress=None
        )
        return city.with_map(resolution=resolution).plan(suggestions=False)


@pytest.fixture(scope="module")
def austin(tmp_path_factory):
    folder = os.environ.get("TRAFFICDP_REAL_DATA")
    if not folder:
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    store = tmp_path_factory.mktemp("austin") / "store"
    city = trafficdp.open(ROOT / "pipelines" / "austin.toml", store=store, create=True)
    city.ingest([Path(folder) / "capmetro" / f"2016-11-{day}.csv.gz" for day in (24, 25, 26, 27)])
    return _Austin(city.with_map(mechanism="baseline"))


def _text(number):
    return f"{number:.3g}"


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.xdist_group("readme")
def test_the_accountings_of_the_readme_is_the_accountings_of_austin(austin, pages):
    found = pages.rows(pages.section(pages.README, "How the loss is added up"))
    table = {row[0].strip("`"): row[2:] for row in found}
    accountings = [accounting["accounting"] for accounting in austin.facts[7]["accountings"]]
    for position, accounting in enumerate(accountings):
        expected = [_text(austin.facts[r]["accountings"][position]["epsilon"]) for r in (7, 6, 5)]
        assert table.pop(accounting) == expected
    assert set(table) == {"accounting", "---"}


@pytest.mark.real
@pytest.mark.xdist_group("readme")
def test_the_verdicts_of_the_guide_are_those_on_austin(austin, pages):
    table = {row[0]: row[1:] for row in pages.rows(pages.guide("choosing-epsilon"))}
    facts = [austin.facts[resolution] for resolution in (7, 6, 5)]
    assert table["hexagons released (withheld: under 5 buses)"] == [
        f"{each['bins']} ({each['bins_withheld']})" for each in facts
    ]
    assert table["average noise, m/s"] == [_text(each["at_worst_error"]) for each in facts]
    for row, name in (
        ("expected error in simulated cities", "value"),
        ("90 % of the error of one city-wide average", "threshold"),
    ):
        assert table[f"{row}, m/s"] == [f"{each[name]:.2g}" for each in facts]
    assert table["verdict"] == ["refused" if each["refused"] else "passes" for each in facts]
    assert table["public floor, m/s"] == [_text(each["floor"]) for each in facts]
    needed = [each["suggestions"]["epsilon"] for each in facts]
    assert table["epsilon that passes, about"] == [f"{each:.2g}" for each in needed]
    page, grown = pages.told("which-map"), facts[0]["growth"]
    assert "With some 6 times as many vehicles" in page
    assert round(grown["times_as_many_vehicles"]) == 6
    assert "the first two days take about epsilon 28, all four 22:" in page
    assert float(grown["loss_needed_then"]) == pytest.approx(28, rel=0.02)
    assert "too slow for more days to do it within a year" in page
    assert grown["days_needed"] is None or grown["days_needed"] > 365


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.xdist_group("readme")
def test_every_other_number_of_which_epsilon_is_recomputed(austin, pages):
    whole = pages.section(pages.README, "How the loss is added up") + pages.guide("choosing-epsilon")
    prose = "\n".join(line for line in whole.splitlines() if not line.startswith("|"))
    prose = re.sub(r"`[^`]*`", "", prose)
    config, facts = austin.city.config, austin.facts[7]
    status = austin.city.status()
    counts = austin.plans[7].allocation.counts
    epsilon, upper = float(config.loss.exact), float(config.map.bound.upper)
    both, free = (austin.with_variances(5, upper * each).allocation for each in (1, 1.5))
    assert both.chosen_accounting.name == free.chosen_accounting.name == "equal"
    scales = both.chosen_accounting.scales(epsilon)
    assert _text(free.chosen_accounting.scales(epsilon)[Statistic.MEAN].max()) == "1.5"
    computed = {
        "2.72": _text(math.exp(1)),
        "54.6": _text(math.exp(float(config.loss.exact))),
        "115,088": f"{status.records:,}",
        "247": str(int(np.count_nonzero(counts.bins_per_user))),
        "30": str(config.map.bound.upper),
        "24": str(config.grid.period.first.day),
        "27": str(config.grid.period.last.day),
        "2016": str(config.grid.period.first.year),
        "4": str(config.loss),
        "8": str(config.policy.total),
        "7": str(config.grid.resolution),
        "9.55": _text(facts["at_worst_error"]),
        "92": str(facts["bins"]),
        "2.79": _text(facts["floor"]),
        "3.42": _text(facts["at_worst_error"] / facts["floor"]),
        "1.5": _text(austin.facts[5]["at_worst_error"]),
        "1.63": _text(scales[Statistic.MEAN].max()),
        "58.8": _text(scales[Statistic.VARIANCE].max()),
        "225": _text(Statistic.VARIANCE.largest(upper)),
        "45": _text(1.5 * upper),
    }
    assert {written: found for written, found in computed.items() if written != found} == {}
    assert [austin.facts[resolution]["chosen"] for resolution in (7, 6, 5)] == ["blocks", "blocks", "equal"]
    asked = {"1", "5", "10"}  # "at epsilon 1", "at resolution 5", "delta 10⁻⁶"
    assert set(NUMBER.findall(prose)) == set(computed) | asked
    assert status.vehicles == 247
