"""All kinds of recipe, and how each is read back: from its own facts, or from what was published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.recipe import BlockRecipe
from trafficdp.mechanisms.clip_user.recipe import SuppressedRecipe
from trafficdp.mechanisms.consistent.recipe import ConsistentRecipe
from trafficdp.mechanisms.laplace.lattice_recipe import LatticeRecipe
from trafficdp.mechanisms.mean_variance.block_recipe import MomentBlockRecipe
from trafficdp.mechanisms.mean_variance.recipe import MomentsRecipe
from trafficdp.mechanisms.recipe import Columns, Recipe
from trafficdp.mechanisms.separate.recipe import MechanismRecipe
from trafficdp.mechanisms.separate.zcdp_recipe import ZCDPRecipe


class Kind(Protocol):
    """A class of recipes: how they are read back."""

    def from_facts(self, facts: Mapping[str, Any]) -> Recipe:
        """Return the recipe that its ``to_facts`` wrote."""

    def from_published(self, facts: Mapping[str, Any], columns: Columns) -> Recipe:
        """Return the recipe of the numbered bins from the manifest's facts and the published columns."""


KINDS: dict[str, Kind] = {
    "blocks": BlockRecipe,
    "consistent": ConsistentRecipe,
    "lattice": LatticeRecipe,
    "moments": MomentsRecipe,
    "moment_blocks": MomentBlockRecipe,
    "suppressed": SuppressedRecipe,
    "mechanism": MechanismRecipe,
    "zcdp_mechanism": ZCDPRecipe,
}


def recipe_from_facts(facts: Mapping[str, Any]) -> Recipe:
    """Return the recipe that ``to_facts`` wrote; raise UsageError for an unknown kind."""
    return _kind(facts.get("kind")).from_facts(facts)


def recipe_from_published(facts: Mapping[str, Any], columns: Columns) -> Recipe:
    """Return the recipe of a published release, from its files alone.

    ``facts`` is the manifest's ``recipe``.
    Raises UsageError for an unknown kind or columns that are not its own.
    """
    return _kind(facts.get("kind")).from_published(facts, columns)


def _kind(name: object) -> Kind:
    if not isinstance(name, str) or name not in KINDS:
        raise UsageError(
            "unknown kind of recipe", got=str(name)[:40], expected="one of " + ", ".join(sorted(KINDS))
        )
    return KINDS[name]
