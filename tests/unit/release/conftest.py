"""Releases of small cities."""

import pytest


@pytest.fixture(autouse=True)
def _maps_are_tried_once(request):
    """What is charged and published must be right for any number of tries."""
    if "few_runs" not in request.fixturenames:
        request.getfixturevalue("two_cities")
