"""What a text or a number may be that a command prints as JSON; schemas follow from it (`make docs`)."""

from __future__ import annotations

from typing import Annotated

from trafficdp.model import Schema
from trafficdp.privacy.loss import Loss, LossKind

LossText = Annotated[str, Schema(pattern=r"^[0-9]+(\.[0-9]+)?$", description="exact decimal text")]
MechanismName = Annotated[str, Schema(pattern="^[a-z0-9_]+$")]
Size = Annotated[float, Schema(minimum=0)]
Words = Annotated[str, Schema(minLength=1)]


def loss_facts(loss: Loss) -> dict[str, str | None]:
    """Return ``loss`` under the name of its kind, and null under that of the other."""
    return {kind.quantity: str(loss) if loss.kind is kind else None for kind in LossKind}
