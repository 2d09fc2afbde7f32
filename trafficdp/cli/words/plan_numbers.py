"""What plans say of a map as plain JSON values, whatever kind of loss they count in."""

from __future__ import annotations

from trafficdp.release.outcomes import Plan, ZCDPPlan


def number_facts(result: Plan | ZCDPPlan) -> dict[str, object]:
    """Return how many bins get numbers, how wide their intervals are, and whether they say enough."""
    allocation = result.allocation
    return {
        "bins": allocation.counts.bins,
        "bins_withheld": int((~allocation.keep).sum()),
        "interval": {
            "level": allocation.request.interval_level,
            "median_half_width": result.precision.median,
            "worst_half_width": result.precision.worst,
        },
        "refused": result.verdict.refused,
        "median_error": result.verdict.median_error,
        "refuse_above": result.verdict.threshold,
    }
