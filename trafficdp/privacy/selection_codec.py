"""A selection as JSON, and back, without losing a bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import shapely

from trafficdp.model.area import StudyArea
from trafficdp.model.selection import Place, Selection


def selection_to_facts(selection: Selection) -> dict[str, Any]:
    """Return ``selection`` as plain JSON values."""
    return {
        "hours_of_week": None if selection.hours_of_week is None else list(selection.hours_of_week),
        "places": [
            [{"name": place.name, "area": shapely.to_wkb(place.area.geometry, hex=True)} for place in clause]
            for clause in selection.places
        ],
        "cells": None if selection.cells is None else [format(cell, "x") for cell in selection.cells],
    }


def selection_from_facts(facts: Mapping[str, Any]) -> Selection:
    """Return the selection that ``selection_to_facts`` wrote."""
    hours, cells = facts["hours_of_week"], facts["cells"]
    return Selection(
        hours_of_week=None if hours is None else tuple(hours),
        places=tuple(
            tuple(Place(each["name"], StudyArea(shapely.from_wkb(each["area"]))) for each in clause)
            for clause in facts["places"]
        ),
        cells=None if cells is None else tuple(int(cell, 16) for cell in cells),
    )
