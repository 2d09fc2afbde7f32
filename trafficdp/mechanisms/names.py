"""What mechanisms and accountings are called: all that settings need of them. What they do loads slowly."""

from trafficdp.privacy.loss import LossKind

AUTO = "auto"
"""The word for the mechanism that ``planner.choose`` takes."""
BASELINE = "baseline"
"""Laplace or block noise that prices all statistics jointly, by an accounting."""
PROVED = {LossKind.PURE: BASELINE, LossKind.ZCDP: "gaussian_twin"}
"""What releases a statistic where intervals must be those of a theorem: half widths that are looked for,
several resolutions, and priced questions."""
FLAT, POOLED = "flat", "partial_pooling"
"""Maps of one piece: one number for the city, which is the yardstick of all, and one that leans on it."""
ADD_REMOVE_POOLED = "add_remove_pooling"
"""The one map where nothing about a vehicle is public."""
BY_RANK = "vehicle_quantiles"
"""Quantiles over vehicles, for answers alone."""
CLIP_USER = "clip_user"
ACCOUNTINGS = ("basic", "grid_count", "exact", "equal", "blocks")
BY_NAME = (*ACCOUNTINGS, CLIP_USER)
"""What may be asked for by name; clip_user is never the best where a map says something."""
OTHER_NOISE = {
    "blocks": "block noise",
    CLIP_USER: "vehicles left out of bins, noise for the rest",
}
"""Accountings whose noise is no plain Laplace noise."""
