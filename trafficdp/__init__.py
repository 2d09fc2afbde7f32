"""User-level differential privacy for a city's traffic map.

>>> import trafficdp
>>> city = trafficdp.open("trafficdp.toml")
>>> city.ingest(["monday.csv.gz", "tuesday.csv.gz"])
>>> print(city.plan().loss)
>>> release = city.release()
>>> release.to_geodataframe()
"""

from trafficdp.outcomes import IngestedFile, Plan, ReleasedMap, ReleaseSummary, Status
from trafficdp.workspace import Workspace
from trafficdp.workspace import open_workspace as open

__all__ = ["IngestedFile", "Plan", "ReleaseSummary", "ReleasedMap", "Status", "Workspace", "open"]
