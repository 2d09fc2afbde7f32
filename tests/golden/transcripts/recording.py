"""What golden transcripts are made of: noise that is recorded, cities, plain facts, and how two differ.

What this file and ``write`` take from trafficdp is imported at their top, and all noise enters in ``seeded``.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from unittest.mock import patch

import numpy as np

import trafficdp
from trafficdp.errors import UsageError
from trafficdp.mechanisms import simulated_cities
from trafficdp.noise.source import SimulatedNoise
from trafficdp.release import curator, streaming
from trafficdp.store import store_files

HERE = Path(__file__).parent
SEED = 20260303
CLOSE = 1e-12
"""Two floats that differ by no more than this share are equal: another order of summation moves them so."""
CLOSE_IN_SIMULATION = 1e-6
"""The same of a skill: where a processor's last bit of a speed differs, it may be rounded to another step."""
EVERY = ("mean", "variance", "vehicle_mean")
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
def seeded(tried: bool = True) -> Iterator[Callable[[], dict]]:
    """Every release and stream of the block draws seeded noise; yields what the newest of them has drawn.

    A rehearsal on speeds that are all 0 has a source of its own, made before that of the release itself.
    Without ``tried`` maps are tried in few simulated cities: nothing of that is written.
    """
    made = []

    def source(*_):
        made.append(Recorder())
        return made[-1]

    one = Recorder()
    with (
        patch.object(curator, "SecureNoise", source),
        patch.object(streaming.LiveStream, "_noise", lambda self: one),
        patch.object(simulated_cities, "MOST_DRAWS", simulated_cities.MOST_DRAWS if tried else 1),
        patch.object(
            simulated_cities,
            "_numbers",
            simulated_cities._numbers if tried else lambda counts: range(0, 8, 4),
        ),
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
accept_weak_promise = true
relation = "@relation"
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
@counted
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
    "relation": "replace_user_values",
    "counted": 'min_vehicles = 3\naccounting = "best"',
    "loss": "epsilon = 40",
    "budget": "epsilon_per_vehicle = 1000",
    "resolution": "resolution = 7",
    "slot": "whole_period",
    "statistics": ["mean", "variance"],
    "map": "",
    "more": "",
}
ZCDP = {
    "counted": "min_vehicles = 3",
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
        city = self._configure(Path(shutil.copytree(template, self.fresh())), changes)
        with suppress(UsageError):
            # where the case has another budget, or analysts
            city.raise_budget("another case")
        return city

    def hidden(self, **changes):
        """The same where nothing about a vehicle is public."""
        city = self.empty(relation="add_or_remove_user", budget="epsilon = 100", counted="", **changes)
        city.ingest(sorted(city.store.parent.glob("*.csv")))
        return city

    def empty(self, **changes):
        """The same with nothing in its store."""
        folder = self.fresh()
        folder.mkdir()
        write_days(folder)
        return self._configure(folder, changes)

    def _configure(self, folder, changes):
        text = CONFIG
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
    with store_files.attached(city.store / "vault.duckdb", "vault", "READ_ONLY") as vault:
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
        "min_vehicles": release.request.min_vehicles,
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
