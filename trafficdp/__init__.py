"""User-level differential privacy for a city's traffic map.

>>> import trafficdp
>>> city = trafficdp.open("trafficdp.toml")
>>> city.ingest(["monday.csv.gz", "tuesday.csv.gz"])  # or a frame: city.ingest(df, source="buses")
>>> print(city.plan().loss)
>>> release = city.release()
>>> release.to_geodataframe()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trafficdp.release.recomputation import verify_public
    from trafficdp.release.results import IngestedFile, Plan, ReleasedMap, ReleaseSummary
    from trafficdp.release.status import Status
    from trafficdp.simulation.city import CityModel
    from trafficdp.simulation.write import SimulatedFiles, simulate
    from trafficdp.workspace import Workspace
    from trafficdp.workspace import open_workspace as open
else:
    _HOME = {
        "CityModel": ("trafficdp.simulation.city", "CityModel"),
        "IngestedFile": ("trafficdp.release.results", "IngestedFile"),
        "Plan": ("trafficdp.release.results", "Plan"),
        "ReleaseSummary": ("trafficdp.release.results", "ReleaseSummary"),
        "ReleasedMap": ("trafficdp.release.results", "ReleasedMap"),
        "SimulatedFiles": ("trafficdp.simulation.write", "SimulatedFiles"),
        "Status": ("trafficdp.release.status", "Status"),
        "Workspace": ("trafficdp.workspace", "Workspace"),
        "open": ("trafficdp.workspace", "open_workspace"),
        "simulate": ("trafficdp.simulation.write", "simulate"),
        "verify_public": ("trafficdp.release.recomputation", "verify_public"),
    }

    def __getattr__(name: str) -> object:
        # on first use, so that the command line need not wait for all of it
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, inside = _HOME[name]
        globals()[name] = getattr(import_module(module), inside)
        return globals()[name]

    def __dir__() -> list[str]:
        # what there is to use, before it is loaded too
        return sorted(__all__)


__all__ = [
    "CityModel",
    "IngestedFile",
    "Plan",
    "ReleaseSummary",
    "ReleasedMap",
    "SimulatedFiles",
    "Status",
    "Workspace",
    "open",
    "simulate",
    "verify_public",
]
