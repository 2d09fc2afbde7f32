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
a fixed key. How they are recorded: ``recording``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from recording import (
    EVERY,
    FOLLOWS_DATA,
    HERE,
    ZCDP,
    Cities,
    Recorder,
    charges_of,
    draws_of_release,
    facts_of_plan,
    laws_of_release,
    plain,
    released,
    seeded,
    text_of,
)

from trafficdp.mechanisms.names import BY_NAME as ACCOUNTINGS
from trafficdp.mechanisms.per_statistic_map import MECHANISMS, mechanisms_of
from trafficdp.privacy.loss import LossKind
from trafficdp.research.george_2022.arrivals import Arrivals, prior_plan
from trafficdp.research.george_2022.better_means import best_window, levelled_moments, moments_loss
from trafficdp.research.george_2022.comparison import better_methods, paper_methods

AUSTIN, AUSTIN_FILE = "capmetro", "austin.json"
SUGGESTIONS = "refused, baseline for mean, pooled for variance"
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
        with seeded(tried=mechanism == "auto") as drawn:
            done = city.release(force=True)
        return released(city, done, drawn(), plan=plan)

    return run


def accountings():
    both, three = {"statistics": ("mean", "variance")}, {"statistics": EVERY}
    for name in ("best", *ACCOUNTINGS):
        add("accountings.json", f"{name}: mean, variance", release_of(both, accounting=name))
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
        with seeded(tried=False) as drawn:
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
        with seeded(tried=False) as drawn:
            done = city.release(force=True)
        found = released(city, done, drawn(), follows_data=name.startswith(FOLLOWS_DATA), plan=plan)
        found["laws"]["plan"]["epsilon"] = plan.in_epsilon.epsilon.exact
        return found

    return run


def hidden():
    """Maps where nothing about a vehicle is public; hexagons share H3 parents."""
    add("hidden.json", "pure: mean, variance", one_hidden(""))
    add("hidden.json", "rho: mean, variance, counts", one_hidden("delta = 1e-6", "publish_counts = true"))


def one_hidden(delta, more=""):
    def run(cities):
        city = cities.hidden(
            loss=f"epsilon = 40\n{delta}", resolution="resolution = 6", map=f"fleet = 1000\n{more}"
        )
        with seeded(tried=False) as drawn:
            done = city.release(force=True)
        return released(city, done, drawn(), follows_data=True)

    return run


def plans():
    several = "resolutions = [6, 7, 8]\nmax_half_width = "
    by_hour = {"slot": "hour_of_day", "statistics": ("mean",)}
    for statistic in ("mean", "vehicle_mean"):
        auto = release_of({"statistics": (statistic,)}, mechanism="auto")
        add("plans.json", f"auto: {statistic}", auto)
    two = {"mean": "baseline", "variance": "pooled"}
    add("plans.json", "baseline for mean, pooled for variance", release_of({}, mechanism=two, planned=False))
    add("plans.json", SUGGESTIONS, refused_of_two(two))
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


def refused_of_two(mechanisms):
    def run(cities):
        return {"laws": facts_of_plan(cities.golden().with_map(mechanism=mechanisms).plan()), "draws": {}}

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
                said = stream.end() if name == "end" else stream.ingest([stream.read(path, name)], live=False)
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
    return Arrivals(t // 16, (37 * t + 11 * (t // 16)) % 101, users=24, samples=16, upper_steps=100)


AT = np.array([1, 2, 16, 17, 100, 255, 256, 384])


@cache
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
        with seeded(tried=False) as drawn:
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
    laws = {"charged": [first.charged, second.charged], "earlier": [first.is_reused, second.is_reused]}
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
hidden()
plans()
streams()
answers()
manifests()
add("sample.json", "one day", sample)
add(AUSTIN_FILE, "one day", austin)
assert len(MECHANISMS) == len(mechanisms_of(LossKind.PURE)) + len(mechanisms_of(LossKind.ZCDP))


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
