"""What a vehicle may lose over the whole horizon of a stream, and what every record costs: whole numbers.

Two running sums are kept of every bin: of x, the clipped speed in steps 0..S (S = U/q), and, when the
variance is asked for, of y = x (S - x). Every node of their trees (``stream.signed_counter``) carries
discrete Laplace noise, of scale B for x and S B for y. The second sum is free
(``papers.george_2022.moments``): if a record changes from x to x', |x - x'|/B + |y - y'|/(S B) <= S/B.

**Theorem.** Under REPLACE_USER_VALUES let the rule that accepts records depend on counts and times only, and
let ``touches`` be the sum over the accepted records of vehicle l of the nodes that hold the element (one a
bin and step) the record is part of. Then everything ever published changes in probability by a factor of at
most exp(touches * S / B) when all speeds of l change, however many bins and publications there are.
*Proof.* What is published is a function of the noisy nodes. Which nodes there are, and which records are in
which, is decided by counts and times. Changing l's speeds moves a node of x by at most the sum of |x - x'|
over l's records in it, and likewise y; so the density changes by at most exp(sum over nodes, and l's records
in them, of |x - x'|/B + |y - y'|/(S B)) <= exp(touches * S/B). QED.

**The rule.** Every vehicle has an account of A = H M touches, H the heights of the trees and M
``records_per_vehicle``. A record is accepted while what the account holds, with H (the most a record can
touch) reserved for each record whose step is still open, leaves H for it; when its step closes, its position
is known and the rest of the reserve goes back. So no account ever passes A, whatever comes: M records are
sure to be taken, and most vehicles have room for more. B = ceil(A S / epsilon), so A S / B <= epsilon
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from trafficdp.errors import UsageError, integer_between
from trafficdp.noise.secure import LARGEST_SCALE
from trafficdp.privacy.loss import PICO, PureDP

LARGEST_RECORDS = 10**9


@dataclass(frozen=True, slots=True)
class Allowance:
    """One vehicle's epsilon over all bins and publications, and the noise that makes it so.

    ``value_steps``: S. ``arity``, ``heights``: k and H of the trees. ``records_per_vehicle``: M, the records
    that any vehicle is sure to have taken. ``squares``: whether sums of x (S - x) are kept too.

    Raises UsageError for numbers out of range, or noise too large to be drawn exactly.
    """

    epsilon: PureDP
    value_steps: int
    arity: int
    heights: int
    records_per_vehicle: int
    squares: bool

    def __post_init__(self) -> None:
        integer_between(1, 10**6, value_steps=self.value_steps)
        integer_between(3, 101, arity=self.arity)
        integer_between(1, 40, heights=self.heights)
        integer_between(1, LARGEST_RECORDS, records_per_vehicle=self.records_per_vehicle)
        if self.records_per_vehicle * self.value_steps**2 >= 1 << 61:
            raise UsageError(
                "sums of so many records of a vehicle could leave 64 bits",
                got=f"{self.records_per_vehicle} records of up to {self.value_steps} steps",
                expected="records times the square of the steps below 2^61",
                todo="ask for fewer records_per_vehicle or a larger speed_step",
            )
        largest = self.square_scale if self.squares else self.mean_scale
        if largest > LARGEST_SCALE:
            raise UsageError(
                "noise of this size cannot be drawn exactly",
                got=f"a scale of {largest:.3g} steps",
                expected=f"at most {LARGEST_SCALE:.3g}",
                todo="ask for fewer records_per_vehicle, a larger epsilon or a larger speed_step",
            )

    @property
    def touches(self) -> int:
        """A = H M: how many nodes the records of one vehicle may touch."""
        return self.heights * self.records_per_vehicle

    @property
    def mean_scale(self) -> int:
        """B = ceil(A S / epsilon), scale of the noise of sums of x, in steps."""
        return -(-self.touches * self.value_steps * PICO // self.epsilon.pico)

    @property
    def square_scale(self) -> int:
        """S B, scale of the noise of sums of x (S - x)."""
        return self.value_steps * self.mean_scale

    def loss(self, touches: int) -> PureDP:
        """Return what a vehicle loses whose records touch ``touches`` nodes: touches S / B, rounded up."""
        return loss_of(touches, self.value_steps, self.mean_scale)


def loss_of(touches: int, value_steps: int, scale: int) -> PureDP:
    """Return touches S / B as a loss, rounded up; raise UsageError unless the scale is above 0."""
    integer_between(1, int(LARGEST_SCALE), scale=scale)
    return PureDP(-(-touches * value_steps * PICO // scale))
