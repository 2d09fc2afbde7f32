"""Golden transcripts: seeded runs of every mechanism, accounting, plan, stream and SQL answer, written down.

    python tests/golden/transcripts/write.py            writes every file beside this one anew
    python tests/golden/transcripts/write.py zcdp.json  that one alone

``test_transcripts.py`` runs the same cases and says which case and which field differ, and by how much. A
file holds {case: {"laws": ..., "draws": ...}}:

* **laws** follow from counts, configuration and budget alone: bins, what every vehicle is charged (10^-12),
  expected errors, the parameters of every draw that reached the source of noise. Nothing that only moves or
  renames code may change them, nor may another order of draws.
* **draws** are noisy numbers under noise of a fixed seed, and the scales that follow values or earlier noise.
  They change when the same noise is drawn in another order.

Only words that people know are written: mechanisms, accountings, statistics, columns of the published table,
keys of the manifest. No module, class, time, token or hash. Numbers of vehicles are those of the vault, under
a fixed key. What this file takes from trafficdp is imported below, and all noise enters in ``seeded``.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np

import trafficdp
from trafficdp.live import streaming
from trafficdp.mechanisms.names import BY_NAME as ACCOUNTINGS
from trafficdp.mechanisms.registry import MECHANISMS, mechanisms_of
from trafficdp.noise.source import SimulatedNoise
from trafficdp.papers.george_2022.arrivals import Arrivals
from trafficdp.papers.george_2022.comparison import better_methods, paper_methods
from trafficdp.papers.george_2022.levels import prior_plan
from trafficdp.papers.george_2022.moments import levelled_moments, moments_loss
from trafficdp.papers.george_2022.sliding import best_window
from trafficdp.privacy.loss import LossKind
from trafficdp.release import curator

HERE = Path(__file__).parent
SEED = 20260303
CLOSE = 1e-12
"""Two floats that differ by no more than this share are equal: another order of summation moves them so."""
CLOSE_IN_SIMULATION = 1e-6
"""The same of a skill: where a processor's last bit of a speed differs, it may be rounded to another step."""
EVERY = ("mean", "variance", "vehicle_mean")
AUSTIN, AUSTIN_FILE = "capmetro", "austin.json"
FOLLOWS_DATA = (
    "akmv",
    "fixed_quantile",
    "huber",
    "levy",
    "optimized_quantile",
    "plan",
    "two_stage",
)
"""Mechanisms whose later draws have parameters that follow values or earlier noise, by how they begin."""


# ----------------------------------------------------------------------------------------------- the noise


class Recorder(SimulatedNoise):
    """Noise of one seed that remembers with what parameters it was drawn, and how often."""

    def __init__(self):
        super().__init__(SEED)
        self.drawn = Counter()
        self._inside = False

    def _note(self, verb, *parameters):
        if not self._inside:
            columns = [np.broadcast_to(each, np.shape(parameters[0])).ravel().tolist() for each in parameters]
            self.drawn.update((verb, *row) for row in zip(*columns, strict=True) if row[-1] > 0)

    def discrete_laplace(self, scale):
        self._note("laplace", scale)
        return super().discrete_laplace(scale)

    def discrete_gaussian(self, sd):
        self._note("gaussian", sd)
        return super().discrete_gaussian(sd)

    def uniform_below(self, count):
        self._note("uniform below", count)
        return super().uniform_below(count)

    def choose(self, cost, weight, start, scale, runs=1):
        self._note("choice", np.diff(start), np.broadcast_to(scale, len(start) - 1))
        return super().choose(cost, weight, start, scale, runs)

    def block(self, half_width, block, scale):
        for each in range(len(scale)):
            self._note("block", int(np.sum(np.asarray(block) == each)), float(scale[each]))
        for width in half_width:
            self._note("half width in a block", int(width))
        self._inside = True
        try:
            return super().block(half_width, block, scale)
        finally:
            self._inside = False

    def transcript(self):
        """{verb: [[parameters ..., how often], ...]}; parameters that differ by a hair are one."""
        found = {}
        for (verb, *parameters), times in sorted(self.drawn.items()):
            rows = found.setdefault(verb, [])
            if rows and rows[-1][:-2] == parameters[:-1] and math.isclose(rows[-1][-2], parameters[-1]):
                rows[-1][-1] += times
            else:
                rows.append([*parameters, times])
        return found


@contextmanager
def seeded() -> Iterator[Callable[[], dict]]:
    """Every release and stream of the block draws seeded noise; yields what the newest of them has drawn.

    A rehearsal on speeds that are all 0 has a source of its own, made before that of the release itself.
    """
    made = []

    def source(*_):
        made.append(Recorder())
        return made[-1]

    one = Recorder()
    with (
        patch.object(curator, "SecureNoise", source),
        patch.object(streaming.LiveStream, "_noise", lambda self: one),
    ):
        yield lambda: (made[-1] if made else one).transcript()


# ------------------------------------------------------------------------------------------------ the city

CONFIG = """
[city]
name = "Golden City"
publisher = "Golden City Transport"
time_zone = "Asia/Kolkata"
study_area = { bbox = [72.70, 21.10, 72.95, 21.28] }
period = { from = "2026-03-03", to = "2026-03-04" }

[privacy]
relation = "replace_user_values"
@loss

[budget]
@budget

[map]
@resolution
slot = "@slot"
speed_bound = 65
speed_unit = "km/h"
speed_step = 0.01
display_unit = "km/h"
min_vehicles = 3
accounting = "best"
statistics = @statistics
@map

@more

[[source]]
name = "buses"
format = "csv"
files = ["*.csv"]
speed_unit = "km/h"
time_format = "iso8601"
columns = { vehicle = "plate", time = "at", latitude = "latitude", longitude = "longitude", speed = "speed" }
"""
DEFAULTS = {
    "loss": "epsilon = 40",
    "budget": "epsilon_per_vehicle = 1000",
    "resolution": "resolution = 7",
    "slot": "whole_period",
    "statistics": ["mean", "variance"],
    "map": "",
    "more": "",
}
ZCDP = {
    "loss": "rho = 40",
    "budget": 'kind = "zcdp"\nrho_per_vehicle = 1000\ndelta = 1e-6',
}
VEHICLES, PLACES = 20, 8


def records_of(vehicle, place):
    """How many records there are: one place that a vehicle dominates, one of single records, one lonely."""
    if place == 0:
        return 17 if vehicle == 0 else vehicle % 3
    if place == PLACES - 1:
        return 5 if vehicle == 3 else 0
    if place == PLACES - 2:
        return vehicle % 2
    return (7 * vehicle + 5 * place) % 11 // 2


def write_days(folder):
    """Write both days: vehicles in order, some speeds above the bound, no two records of one at once."""
    for day in range(2):
        rows = ["plate,at,latitude,longitude,speed"]
        for vehicle in range(VEHICLES):
            for place in range(PLACES):
                for record in range(records_of(vehicle, place)):
                    if (record + place) % 2 != day:
                        continue
                    minute = 60 * (8 + place // 2 + (vehicle + place) % 3) + 30 * (place % 2)
                    seconds = 60 * minute + 150 * (record // 2)
                    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
                    at = f"2026-03-0{3 + day}T{clock}+05:30"
                    speed = (37 * vehicle + 11 * record + 17 * place) % 71 + (
                        7 * record + vehicle
                    ) % 100 / 100
                    latitude, longitude = 21.13 + 0.02 * (place % 3), 72.74 + 0.02 * (place // 3)
                    rows.append(f"GA-{vehicle:02d},{at},{latitude:.4f},{longitude:.4f},{speed:.2f}")
        (folder / f"day{day}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


class Cities:
    """Folders with a city in each: every case has a copy of its own, of stores that are filled once."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.made = 0

    def fresh(self):
        self.made += 1
        return self.folder / f"city{self.made}"

    def golden(self, **changes):
        """The small city of this file; ``changes`` replace DEFAULTS."""
        kind = "zcdp" if changes.get("budget") == ZCDP["budget"] else "pure"
        template = self.folder / kind
        if not template.exists():
            template.mkdir()
            write_days(template)
            self._configure(template, changes if kind == "zcdp" else {})
            trafficdp.open(template / "trafficdp.toml", create=True).ingest(sorted(template.glob("*.csv")))
        return self._configure(Path(shutil.copytree(template, self.fresh())), changes)

    def empty(self, **changes):
        """The same with nothing in its store."""
        folder = self.fresh()
        folder.mkdir()
        write_days(folder)
        return self._configure(folder, changes)

    def _configure(self, folder, changes):
        text = CONFIG
        if changes.get("budget") == ZCDP["budget"]:
            text = text.replace('accounting = "best"\n', "")
        for name, value in {**DEFAULTS, **changes}.items():
            text = text.replace(f"@{name}", value if isinstance(value, str) else json.dumps(list(value)))
        return opened(folder, text)

    def of(self, config, files):
        """A city under another configuration."""
        folder = self.fresh()
        folder.mkdir()
        city = opened(folder, config)
        city.ingest(files)
        return city


def opened(folder, config):
    """The city in ``folder`` under ``config``. Its key is fixed: vehicles are numbered by pseudonym."""
    (folder / "trafficdp.toml").write_text(config, encoding="utf-8")
    key = folder / "city.store.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_text(f"trafficdp-key-1 {20260303:064x}\n", encoding="ascii")
    return trafficdp.open(folder / "trafficdp.toml", create=True)


# ----------------------------------------------------------------------------------------- what is written


def charges_of(city):
    """Every vehicle's charges, 10^-12: one list a charge, in the order of the ledger."""
    with duckdb.connect(str(city.store / "vault.duckdb"), read_only=True) as vault:
        rows = vault.execute(
            "SELECT sequence, vehicle_id, loss_pico FROM vehicle_charges ORDER BY ALL"
        ).fetchall()
    found = {}
    for sequence, vehicle, loss in rows:
        found.setdefault(sequence, {})[str(vehicle)] = loss
    return list(found.values())


def laws_of_release(release):
    """What counts decide of a Release."""
    found = {
        "cell": [format(int(cell), "x") for cell in release.cell],
        "slot": release.slot,
        "status": release.status,
        "min_vehicles": release.min_vehicles,
    }
    for statistic, estimate in release.estimates.items():
        found[statistic.value] = {
            "expected_error": estimate.expected_error,
            "noise_scale": estimate.noise_scale,
            "status": estimate.status,
            **{
                name: values
                for name, values in estimate.noise.items()
                if np.any(values != estimate.noise_scale)
            },
        }
    return found


def draws_of_release(release):
    """The noisy numbers of a Release."""
    return {
        statistic.value: {"value": estimate.value, "low": estimate.low, "high": estimate.high}
        for statistic, estimate in release.estimates.items()
    }


def facts_of_plan(plan):
    """What a plan says, in pure epsilon or rho."""
    found = {
        "loss": plan.loss.pico,
        "budget_left": plan.budget_left.pico,
        "precision": plan.precision,
        "verdict": (plan.verdict.rule.value, plan.verdict.statistic.value, plan.verdict.value),
        "refused": plan.verdict.refused,
        "bins": plan.allocation.counts.bins,
    }
    for name in ("suggestions", "affordable", "growth"):
        if getattr(plan, name, None) is not None:
            found[name] = getattr(plan, name)
    if getattr(plan, "asked", None) is not None:
        found["asked"] = plan.asked.pico
    answer = getattr(plan, "answer", None)
    if answer is not None:
        found["median_loss"] = answer.median_loss
        found["every_loss"] = answer.every_loss
        found["options"] = [_option(option) for option in answer.options]
        found["chosen"] = None if answer.chosen is None else _option(answer.chosen)
    adaptive = getattr(plan, "adaptive", None)
    if adaptive is not None:
        found["levels"], found["coverage"] = adaptive.levels, adaptive.coverage
        found["value"], found["value_bound"] = adaptive.value, adaptive.bound
    return found


def _option(option):
    return {
        "resolution": option.grid.resolution,
        "slot": option.grid.slot_kind,
        **{name: getattr(option, name) for name in ("min_vehicles", "bins", "half_width", "fits", "loss")},
    }


def released(city, done, drawn, *, follows_data=False, plan=None):
    """The transcript of one release: ``done`` is what it gave, ``drawn`` the noise."""
    laws = {"charges": charges_of(city), **laws_of_release(done.release)}
    draws = draws_of_release(done.release)
    if plan is not None:
        laws["plan"] = facts_of_plan(plan)
    (draws if follows_data else laws)["noise"] = drawn
    return {"laws": laws, "draws": draws}


def plain(value):
    """``value`` in what JSON knows: whole numbers stay whole, missing numbers are null."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if is_dataclass(value):
        if hasattr(value, "pico"):
            return value.pico
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


# ------------------------------------------------------------------------------------------------- the cases

CASES: dict[str, dict[str, Callable[[Cities], dict]]] = {}
"""{file: {case: run}}."""


def add(file, name, run):
    assert name not in CASES.setdefault(file, {}), name
    CASES[file][name] = run


def release_of(changes, mechanism=None, accounting=None, *, planned=True):
    """A case: one forced release of the city under ``changes``, and the plan that foretells it."""

    def run(cities):
        city = cities.golden(**changes)
        if mechanism or accounting:
            # every accounting is one of the baseline's
            city = city.with_map(mechanism=mechanism or "baseline", accounting=accounting)
        plan = city.plan() if planned else None
        with seeded() as drawn:
            done = city.release(force=True)
        return released(city, done, drawn(), plan=plan)

    return run


def accountings():
    both, three = {"statistics": ("mean", "variance")}, {"statistics": EVERY}
    for name in ("best", *ACCOUNTINGS):
        if name != "consistent":
            add("accountings.json", f"{name}: mean, variance", release_of(both, accounting=name))
    for name in ("best", *ACCOUNTINGS):
        add("accountings.json", f"{name}: mean", release_of({"statistics": ("mean",)}, accounting=name))
    for name in ("exact", "equal"):
        add("accountings.json", f"{name}: all three", release_of(three, accounting=name))
    hourly = {**both, "slot": "hour_of_day"}
    for name in ("exact", "blocks"):
        add("accountings.json", f"{name}: by the hour", release_of(hourly, accounting=name))


def pure_mechanisms():
    for mechanism in mechanisms_of(LossKind.PURE):
        for statistic in mechanism.statistics:
            run = one_mechanism(mechanism.name, statistic.value)
            add("mechanisms.json", f"{mechanism.name}: {statistic.value}", run)


def one_mechanism(name, statistic):
    def run(cities):
        city = cities.golden(statistics=(statistic,)).with_map(mechanism="baseline")
        with seeded() as drawn:
            done = city.release(force=True, allow_idealised_noise=None if name == "baseline" else name)
        return released(city, done, drawn(), follows_data=name.startswith(FOLLOWS_DATA))

    return run


def zcdp_mechanisms():
    for mechanism in mechanisms_of(LossKind.ZCDP):
        for statistic in mechanism.statistics:
            run = one_zcdp(mechanism.name, (statistic.value,))
            add("zcdp.json", f"{mechanism.name}: {statistic.value}", run)
    add("zcdp.json", "gaussian_twin: mean, variance", one_zcdp("gaussian_twin", ("mean", "variance")))


def one_zcdp(name, wanted):
    def run(cities):
        city = cities.golden(**ZCDP, statistics=wanted, map=f'mechanism = "{name}"')
        plan = city.plan()
        with seeded() as drawn:
            done = city.release(force=True)
        found = released(city, done, drawn(), follows_data=name.startswith(FOLLOWS_DATA), plan=plan)
        found["laws"]["plan"]["epsilon"] = plan.in_epsilon.epsilon.exact
        return found

    return run


def plans():
    several = "resolutions = [6, 7, 8]\nmax_half_width = "
    by_hour = {"slot": "hour_of_day", "statistics": ("mean",)}
    for statistic in ("mean", "vehicle_mean"):
        auto = release_of({"statistics": (statistic,)}, mechanism="auto")
        add("plans.json", f"auto: {statistic}", auto)
    add(
        "plans.json",
        "baseline for mean, pooled for variance",
        release_of({}, mechanism={"mean": "baseline", "variance": "pooled"}),
    )
    add(
        "plans.json",
        "adaptive: three resolutions",
        release_of({"statistics": ("mean",), "resolution": several + '"6 km/h"'}),
    )
    add(
        "plans.json",
        "adaptive: longer slots",
        release_of(
            {
                **by_hour,
                "resolution": several + '"6 km/h"\nlonger_slots = ["day_part", "whole_period"]\ndetail = 0.5',
            }
        ),
    )
    add("plans.json", "max_half_width: least epsilon, median", half_width(4))
    add("plans.json", "max_half_width: least epsilon, every", half_width("4 in every bin"))
    add("plans.json", "max_half_width: finest map", half_width(4, search_maps=True))
    add("plans.json", "refused, with suggestions and growth", refused)
    add("plans.json", "saved plan", saved)
    add("plans.json", "within budget", within_budget)


def half_width(asked, **question):
    def run(cities):
        city = cities.golden(statistics=("mean", "variance"))
        return {"laws": facts_of_plan(city.plan(max_half_width=asked, **question)), "draws": {}}

    return run


def refused(cities):
    city = cities.golden(loss="epsilon = 2", slot="hour_of_day")
    return {"laws": facts_of_plan(city.plan()), "draws": {}}


def saved(cities):
    city = cities.golden()
    plan = city.plan("30", save="spring")
    with seeded() as drawn:
        done = city.release(plan="spring")
    return released(city, done, drawn(), plan=plan)


def within_budget(cities):
    city = cities.golden(budget="epsilon_per_vehicle = 60")
    with seeded():
        city.release("35", force=True)
    plan = city.plan("50", within_budget=True)
    with seeded() as drawn:
        done = city.release("50", within_budget=True, force=True)
    return released(city, done, drawn(), plan=plan)


STREAM = """
[stream]
epsilon = 900
publish_every = 5
lateness = 3
records_per_vehicle = {records}
"""


def live(statistics, records, per_step=0):
    """A stream of both days, looked at after each."""

    def run(cities):
        table = STREAM.format(records=records) + (f"records_per_step = {per_step}\n" if per_step else "")
        city = cities.empty(statistics=statistics, more=table)
        laws, draws = {}, {}
        with seeded() as drawn:
            stream = city.live()
            stream.begin()
            for name in ("day0", "day1", "end"):
                path = city.store.parent / f"{name}.csv"
                said = stream.end() if name == "end" else stream.take([stream.read(path, name)], live=False)
                newest = city.map("s0001").release
                told = {"publications": said.publications, "fates": said.fates}
                laws[name] = {**told, **laws_of_release(newest)}
                draws[name] = draws_of_release(newest)
            laws["noise"] = drawn()
        return {"laws": {"charges": charges_of(city), **laws}, "draws": draws}

    return run


def streams():
    add("streams.json", "live: mean, variance", live(("mean", "variance"), 40))
    add("streams.json", "live: mean", live(("mean",), 40))
    add("streams.json", "live: mean, too many records", live(("mean",), 12, per_step=2))
    for method in range(len(methods())):
        add("streams.json", f"continual: {methods()[method].name}", continual(method))
    add("streams.json", "continual: two moments", two_moments)
    add("streams.json", "continual: sliding window", sliding)


def arrivals():
    """24 vehicles of 16 samples, one after another, values spread over 0..100."""
    t = np.arange(24 * 16)
    return Arrivals(t // 16, (37 * t + 11 * (t // 16)) % 101, users=24, samples=16, steps=100)


AT = np.array([1, 2, 16, 17, 100, 255, 256, 384])


def methods():
    stream = arrivals()
    return [*paper_methods(stream, 30.0, 0.05), *better_methods(stream, 30.0, 0.05, "1e-6")]


def continual(number):
    def run(_):
        method, noise = methods()[number], Recorder()
        found = method.run(noise, 2, AT)
        # medians are chosen among values
        follows = any(verb == "choice" for verb in noise.transcript())
        laws, draws = {"guarantee": method.guarantee}, {"mean": found}
        (draws if follows else laws)["noise"] = noise.transcript()
        return {"laws": laws, "draws": draws}

    return run


def two_moments(_):
    plan = prior_plan(24, 16, 100, 30.0, 0.05, prior=False)
    noise = Recorder()
    mean, variance = levelled_moments(arrivals(), plan, noise, 2, AT)
    laws = {"loss": moments_loss(plan), "width": plan.width, "noise": noise.transcript()}
    return {"laws": laws, "draws": {"mean": mean, "variance": variance}}


def sliding(_):
    window, noise = best_window(12), Recorder()
    scale = window.scale(5, 100, 4.0)
    sums = window.sums(37 * np.arange(40) % 101, scale, noise)
    user, step = np.arange(60) % 7, 1 + np.arange(60) % 40
    loss = window.loss_per_vehicle(user, step, 100, scale, 7)
    laws = {
        "price": window.price,
        "scale": scale,
        "charges": loss,
        "variance": window.variance(),
        "noise": noise.transcript(),
    }
    return {"laws": laws, "draws": {"sums": sums}}


AREAS = """
[[areas]]
name = "west"
bbox = [72.70, 21.10, 72.75, 21.28]

[[analysts]]
name = "newsroom"
epsilon_per_vehicle = 900
"""
SELECT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 40, force = TRUE) "
QUESTIONS = {
    "mean": "cell, AVG(speed) AS m, DP_INTERVAL_LOW(m), DP_INTERVAL_HIGH(m) FROM fixes GROUP BY cell",
    "variance": "cell, VAR_POP(speed) FROM fixes GROUP BY cell",
    "mean and standard deviation": "cell, AVG(speed), STDDEV_POP(speed) FROM fixes GROUP BY cell",
    "vehicle mean": "cell, VEHICLE_AVG(speed) FROM fixes GROUP BY cell",
    "area and hour": "cell, AVG(speed), COUNT(*) FROM fixes WHERE hour = 8 AND area = 'west' GROUP BY cell",
    "slots": "cell, slot('hour_of_day'), AVG(speed) FROM fixes GROUP BY cell, slot('hour_of_day')",
    "counts alone": "cell, COUNT(*) AS n, COUNT(DISTINCT vehicle) FROM fixes GROUP BY cell ORDER BY n DESC",
}


def answers():
    for name, text in QUESTIONS.items():
        add("answers.json", name, answer(text))
    add("answers.json", "the same question twice", asked_twice)
    add("answers.json", "explained", explained)


def answer(text):
    def run(cities):
        city = cities.golden(more=AREAS)
        with seeded() as drawn:
            found = city.ask(SELECT + text, analyst="newsroom")
        rows = found.rows.to_pydict()
        laws = {"charged": found.charged, "charges": charges_of(city), "columns": list(rows)}
        if found.release is None:
            return {"laws": {**laws, "rows": rows}, "draws": {}}
        return {"laws": {**laws, "noise": drawn(), **laws_of_release(found.release)}, "draws": rows}

    return run


def asked_twice(cities):
    city = cities.golden(more=AREAS)
    text = SELECT + QUESTIONS["mean"]
    with seeded():
        first, second = (city.ask(text, analyst="newsroom") for _ in range(2))
    laws = {"charged": [first.charged, second.charged], "earlier": [first.earlier, second.earlier]}
    return {"laws": {**laws, "charges": charges_of(city)}, "draws": {"same": first.rows.equals(second.rows)}}


def explained(cities):
    city = cities.golden(more=AREAS)
    found = city.ask("EXPLAIN " + SELECT + QUESTIONS["area and hour"], analyst="newsroom")
    rows = dict(zip(*(found.rows[name].to_pylist() for name in ("what", "value")), strict=True))
    numbers = {what: value for what, value in rows.items() if _number(value)}
    return {"laws": {**numbers, "plan": facts_of_plan(found.plan)}, "draws": {}}


MANIFEST = ("accounting", "bounds", "coverage", "guarantee", "mechanisms", "noise", "registry")
ASIDE = {"head_hash", "study_area", "study_area_sha256", "created_at", "day_parts"}


def manifests():
    for name, changes in {"epsilon": {}, "rho": ZCDP}.items():
        add("manifests.json", name, manifest(changes))


def manifest(changes):
    """The numbers of the manifest of a second release."""

    def run(cities):
        city = cities.golden(**changes)
        with seeded():
            city.release("10", force=True)
            done = city.release("30", force=True)
        said = json.loads((done.folder / "manifest.json").read_text(encoding="utf-8"))
        return {"laws": {group: numbers(said[group]) for group in MANIFEST if group in said}, "draws": {}}

    return run


def numbers(facts):
    """Return the numbers in ``facts``, texts that are numbers included, under their keys."""
    if isinstance(facts, dict):
        found = {key: numbers(each) for key, each in facts.items() if key not in ASIDE}
        return {key: each for key, each in found.items() if each not in ({}, [], None)}
    if isinstance(facts, list):
        return [each for each in map(numbers, facts) if each not in ({}, [], None)]
    return facts if isinstance(facts, int | float) or _number(facts) else None


def _number(value):
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def sample(cities):
    """A day of the embedded sample, as its own configuration releases it."""
    data = HERE.parents[2] / "data" / "sample"
    config = (data / "trafficdp.toml").read_text(encoding="utf-8").replace("resolution = 7", "resolution = 6")
    # files around the map are no part of its numbers
    config = config.partition("[[context]]")[0]
    city = cities.of(config, [data / "positions-2026-03-03.csv.gz"])
    with seeded() as drawn:
        done = city.release()
    return released(city, done, drawn())


def austin_there():
    return "TRAFFICDP_REAL_DATA" in os.environ


def austin(cities):
    """A real day of Austin's buses in large hexagons."""
    root = HERE.parents[2] / "pipelines" / "austin.toml"
    config = root.read_text(encoding="utf-8")
    for old, new in (
        ('from = "2016-11-24", to = "2016-11-27"', 'from = "2015-03-08", to = "2015-03-08"'),
        ("resolution = 7", "resolution = 6"),
    ):
        assert old in config
        config = config.replace(old, new)
    days = Path(os.environ["TRAFFICDP_REAL_DATA"]) / AUSTIN
    city = cities.of(config, [next(days.rglob("2015-03-08.csv.gz"))])
    with seeded() as drawn:
        done = city.release(force=True)
    return released(city, done, drawn())


accountings()
pure_mechanisms()
zcdp_mechanisms()
plans()
streams()
answers()
manifests()
add("sample.json", "one day", sample)
add(AUSTIN_FILE, "one day", austin)
assert len(MECHANISMS) == len(mechanisms_of(LossKind.PURE)) + len(mechanisms_of(LossKind.ZCDP))

# ------------------------------------------------------------------------------------------------- the files


def differences(expected, found, where="", close=CLOSE):
    """Yield a line for every field that differs: whole numbers and texts exactly, floats within ``close``."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            here = f"{where} / {key}" if where else key
            if key not in found or key not in expected:
                yield f"{here}: " + ("is missing" if key in expected else "is new")
            else:
                within = CLOSE_IN_SIMULATION if key == "skill" else close
                yield from differences(expected[key], found[key], here, within)
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield f"{where}: {len(expected)} entries became {len(found)}"
        for place, pair in enumerate(zip(expected, found, strict=False)):
            yield from differences(*pair, f"{where} [{place}]", close)
    elif _is_number(expected) and _is_number(found):
        exact = isinstance(expected, int) and isinstance(found, int)
        if expected != found and (exact or not math.isclose(expected, found, rel_tol=close)):
            share = f", {found / expected:.6g} times" if expected else ""
            yield f"{where}: {expected!r} became {found!r}, by {found - expected:+.6g}{share}"
    elif expected != found:
        yield f"{where}: {expected!r} became {found!r}"


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_of(value, depth=0):
    """JSON with sorted keys, one line a field: lists, and objects of numbers alone, are not broken."""
    if isinstance(value, dict) and value and any(isinstance(each, dict | list) for each in value.values()):
        gap = " " * (depth + 1)
        lines = [f"{gap}{json.dumps(key)}: {text_of(each, depth + 1)}" for key, each in sorted(value.items())]
        return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"
    return json.dumps(value, sort_keys=True, allow_nan=False)


def main():
    wanted = sys.argv[1:] or [name for name in CASES if name != AUSTIN_FILE or austin_there()]
    with tempfile.TemporaryDirectory() as folder:
        cities = Cities(folder)
        for file in wanted:
            found = {name: plain(run(cities)) for name, run in CASES[file].items()}
            (HERE / file).write_text(text_of(found) + "\n", encoding="utf-8")
            print(f"{file}: {len(found)} cases, {(HERE / file).stat().st_size} bytes")


if __name__ == "__main__":
    main()
