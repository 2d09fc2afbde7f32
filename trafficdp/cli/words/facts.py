"""What a text or a number may be that a command prints as JSON; schemas follow from it (`make docs`)."""

from __future__ import annotations

from typing import Annotated

from trafficdp.model import Says

LossText = Annotated[str, Says(pattern=r"^[0-9]+(\.[0-9]+)?$", description="exact decimal text")]
MechanismName = Annotated[str, Says(pattern="^[a-z0-9_]+$")]
Size = Annotated[float, Says(minimum=0)]
Words = Annotated[str, Says(minLength=1)]
