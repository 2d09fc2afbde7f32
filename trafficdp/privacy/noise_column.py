"""Columns that a published statistic carries so that anyone with the counts can price it again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoiseColumn:
    """One column a statistic, published as ``STEM_NAME``, exact to the last bit.

    ``withheld`` is what whole numbers hold where the bin is withheld (an integer column has no null);
    None for a column of floats, which is null there.
    """

    name: str
    unit: str | None
    description: str
    withheld: int | None = None


ROUNDS = 6
"""The most rounds of residuals that a map of a declared grid has."""
NOISE_COLUMNS = {
    column.name: column
    for column in (
        NoiseColumn("lattice_scale", "lattice steps", "exact scale of the noise as it was drawn"),
        NoiseColumn("product_scale", "lattice steps", "exact scale of the noise of the sum of x (U - x)"),
        NoiseColumn("product_block", None, "number of the block of its sum of x (U - x); -1 for none", -1),
        NoiseColumn(
            "product_half_width", "lattice steps", "half width of the noise of that sum; 0 for none", 0
        ),
        NoiseColumn("product_shift", None, "that sum is multiplied by 2 to this power before noise", 0),
        NoiseColumn("block_scale", None, "exact scale s of the noise of its block; 0 for a constant"),
        NoiseColumn("block", None, "number of its block, whose noise is drawn together; -1 for none", -1),
        NoiseColumn("half_width", "lattice steps", "half width a of the noise in its block; 0 for none", 0),
        NoiseColumn("shift", None, "the exact integer is multiplied by 2 to this power before noise", 0),
        NoiseColumn("noise_terms", None, "draws of that scale whose sum is the noise", 0),
        NoiseColumn("rho", None, "rho that the mechanism was given for all bins together, exactly"),
        NoiseColumn("epsilon", None, "epsilon that the mechanism was given in the bin, exactly"),
        NoiseColumn("rank_low", "vehicles", "the vehicle, from the slowest, whose speed is the lower end", 0),
        NoiseColumn(
            "rank_high", "vehicles", "the vehicle, from the slowest, whose speed is the upper end", 0
        ),
        NoiseColumn("fleet_fast", "grains", "noisy number of vehicles, counted as far as they are fast", 0),
        NoiseColumn("fleet_slow", "grains", "noisy number of vehicles, counted as far as they are slow", 0),
        NoiseColumn("city_vehicles", "vehicles", "vehicles in all, by these two"),
        NoiseColumn("city_centre", "speed bound's unit", "speed of the city, by these two"),
        NoiseColumn("city_reach", "speed bound's unit", "what a vehicle's first residuals are clipped to"),
        NoiseColumn("city_power", None, "power of a vehicle's numbers of records in its weights"),
        NoiseColumn("weight", "grains", "noisy weight of the hexagon", 0),
        *(
            column
            for each in range(1, ROUNDS + 1)
            for column in (
                NoiseColumn(f"residual_{each}", "grains", f"noisy residual of the hexagon, round {each}", 0),
                NoiseColumn(f"map_{each}", "speed bound's unit", f"the map that round {each} asked about"),
            )
        ),
        *(
            column
            for each in ("vehicles", "records")
            for column in (
                NoiseColumn(
                    f"{each}_length", "grains", f"noisy: how long vehicles' vectors of {each} are", 0
                ),
                NoiseColumn(f"{each}_reach", each, "what those vectors are clipped to, by that"),
                NoiseColumn(f"{each}_answer", "grains", f"noisy number of {each} of the bin", 0),
                NoiseColumn(each, each, f"number of {each} that this answer makes likely"),
                NoiseColumn(f"{each}_low", each, f"lower end of the noise about the number of {each}"),
                NoiseColumn(f"{each}_high", each, f"upper end of the noise about the number of {each}"),
            )
        ),
        NoiseColumn("spread", "grains", "noisy number that says how much speeds vary in the city", 0),
    )
}
"""All that there are; a calibrated mechanism uses some of them (``Estimate.noise``)."""
