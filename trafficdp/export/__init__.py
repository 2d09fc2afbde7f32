"""Files, map page and report of a release. Cannot import what holds people's values."""
