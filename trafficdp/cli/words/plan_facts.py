"""A plan as plain JSON values: plan.schema.json."""

from __future__ import annotations

import numpy as np

from trafficdp.mechanisms.protocol import Accounting
from trafficdp.model import Statistic, as_json
from trafficdp.planner.request import MapOption
from trafficdp.planner.suggest import Growth
from trafficdp.privacy.loss import Loss, LossKind
from trafficdp.release.results import InEpsilon, Plan
from trafficdp.research.full_comparison import FullCurves


def plan_facts(result: Plan, full: FullCurves | None = None) -> dict[str, object]:
    """Return the plan as plain JSON values; ``full`` is every accounting, where it was computed."""
    allocation, able = result.allocation, result.affordable
    request, verdict = allocation.request, result.verdict
    hidden = request.relation.hides_presence
    statistic, best = request.main, allocation.best
    epsilon, noise, accountings = float(request.loss.exact), None, []
    if best is not None:
        scale = best.worst_relative_scale(epsilon, request.tolerance)
        noise = result.shown(float(best.scales(epsilon)[statistic].max()))
        accountings = [
            _accounting_facts(each, result, statistic, scale, noise) for each in allocation.accountings
        ]
    return {
        **loss_facts(request.loss),
        "loss": str(allocation.loss),
        "in_epsilon": _in_epsilon_facts(result.in_epsilon),
        "chosen": allocation.event.mechanism if best is None else best.name,
        "reason": allocation.reason,
        "statistic": statistic.value,
        "unit": result.display_unit.value,
        "map": {
            "resolution": result.grid.resolution,
            "slot": result.grid.slot_kind.value,
            "slot_not_measured": result.slot_not_measured and result.slot_not_measured.value,
            "min_vehicles": request.min_vehicles,
        },
        "bins": allocation.counts.bins,
        "bins_withheld": int((~allocation.keep).sum()),
        "numbers_expected": allocation.skill[statistic].expected_numbers,
        "interval": {
            "level": request.interval_level,
            "median_half_width": result.shown(result.precision.median),
            "worst_half_width": result.shown(result.precision.worst),
        },
        "skill": {each.value: as_json(skill.stated()) for each, skill in allocation.skill.items()},
        "fleet": _fleet_facts(result),
        "refused": verdict.refused,
        "judged_by": verdict.rule.value,
        "judged_for": verdict.statistic.value,
        "value": result.shown(verdict.value, verdict.statistic),
        "threshold": result.shown(verdict.threshold, verdict.statistic),
        "at_worst_error": noise,
        "floor": None if best is None else result.shown(allocation.floor),
        "suggestions": None
        if result.suggestions is None
        else {
            "epsilon": result.suggestions.epsilon,
            "resolution": result.suggestions.resolution,
            "slot": result.suggestions.slot_kind.value if result.suggestions.slot_kind else None,
            "fleet": result.suggestions.fleet,
        },
        "budget_left": str(result.budget_left),
        "left_after": str(result.left_after),
        "earlier": result.earlier,
        "affordable": {
            "vehicles_charged": None if hidden else able.paying,
            "vehicles_short": None if hidden else able.short,
            "vehicles_with_nothing_left": None if hidden else able.empty,
            "loss": _text(able.loss),
            "bins_without_those": None if hidden else able.bins_without_empty,
        },
        "growth": _growth_facts(result.growth),
        "answer": _answer_facts(result),
        "adaptive": _adaptive_facts(result),
        "accountings": accountings,
        "full_comparison": _full_facts(result, full),
    }


def _fleet_facts(result: Plan) -> dict[str, object] | None:
    request = result.allocation.request
    others = [
        {"vehicles": vehicles, **as_json(skill.stated()), "numbers_expected": skill.expected_numbers}
        for vehicles, skill in result.allocation.fleets.items()
    ]
    if not others:
        return None
    return {"vehicles": request.fleet, "known": request.fleet_by, "others": others}


def loss_facts(loss: Loss) -> dict[str, str | None]:
    """Return ``loss`` under the name of its kind, and null under that of the other."""
    return {kind.quantity: str(loss) if loss.kind is kind else None for kind in LossKind}


def _in_epsilon_facts(found: InEpsilon | None) -> dict[str, str] | None:
    if found is None:
        return None
    return {"epsilon": str(found.epsilon), "delta": found.delta, "epsilon_of_sum": str(found.of_sum)}


def _accounting_facts(
    accounting: Accounting, result: Plan, statistic: Statistic, scale: float, noise: float
) -> dict[str, object]:
    request = result.allocation.request
    errors = accounting.errors(float(request.loss.exact))
    return {
        "accounting": accounting.name,
        "epsilon": accounting.epsilon_at(scale, request.tolerance),
        "at_worst_error": noise,
        "worst_error": result.shown(float(errors[statistic].max())),
        "mean_error": result.shown(float(errors[statistic].mean())),
        "by_statistic": {
            each.value: {
                "worst_error": result.shown(float(error.max()), each),
                "mean_error": result.shown(float(np.mean(error)), each),
            }
            for each, error in errors.items()
        },
    }


def _growth_facts(found: Growth | None) -> dict[str, object] | None:
    if found is None:
        return None
    return {
        "loss_needed": str(found.needed),
        "loss_there_is": str(found.allowed),
        "times_as_many_vehicles": found.vehicles,
        "days_there_are": found.days_there,
        "days_measured": found.half_days,
        "loss_needed_then": _text(found.half_needed),
        "days_needed": found.days,
    }


def _adaptive_facts(result: Plan) -> dict[str, object] | None:
    chosen = result.adaptive
    if chosen is None:
        return None
    return {
        "max_half_width": result.shown(float(chosen.mosaic.half_width), Statistic.MEAN),
        "coverage": chosen.coverage,
        "worth": chosen.value,
        "most_worth_with_noise_of_its_own": chosen.bound,
        "levels": [
            {
                "resolution": level.resolution,
                "slot": level.slot_kind.value,
                "bins": level.bins,
                "coverage": level.coverage,
            }
            for level in chosen.levels
        ],
    }


def _answer_facts(result: Plan) -> dict[str, object] | None:
    answer = result.answer
    if answer is None:
        return None
    return {
        "max_half_width": result.shown(answer.half_width),
        "in_bins": answer.reach.value,
        "loss_for_the_median_bin": _text(answer.median_loss),
        "loss_for_every_bin": _text(answer.every_loss),
        "maps": [_option_facts(result, option, option is answer.chosen) for option in answer.options],
        "growth_of_the_configured_map": _growth_facts(answer.growth_of_configured),
    }


def _option_facts(result: Plan, option: MapOption, chosen: bool) -> dict[str, object]:
    return {
        "resolution": option.grid.resolution,
        "slot": option.grid.slot_kind.value,
        "min_vehicles": option.min_vehicles,
        "bins": option.bins,
        "share_of_records": option.records,
        "half_width": result.shown(option.half_width),
        "fits": option.fits,
        "loss_needed": _text(option.loss),
        "chosen": chosen,
    }


def _full_facts(result: Plan, full: FullCurves | None) -> dict[str, object] | None:
    if full is None:
        return None
    return {
        "statistic": Statistic.MEAN.value,
        "complete": full.complete,
        "curves": [
            {
                "accounting": curve.name,
                "points": [
                    {"worst_error": result.shown(error, Statistic.MEAN), "epsilon": epsilon}
                    for error, epsilon in curve.points
                ],
            }
            for curve in full.curves
        ],
        "proofs": [
            {
                "worst_error": result.shown(each.error, Statistic.MEAN),
                "epsilon_per_bin": each.epsilon_per_bin,
                "bins_of_the_busiest": each.bins_per_user,
                "clip_user_bins": each.clip_user_bins,
                "best_bins": each.best_bins,
                "least_bins": each.least_bins,
                "blocks_bound": each.blocks_bound,
            }
            for each in full.comparisons
        ],
    }


def _text(loss: Loss | None) -> str | None:
    return None if loss is None else str(loss)
