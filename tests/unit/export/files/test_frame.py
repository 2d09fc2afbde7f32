from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd

from trafficdp.binning.cells import polygons_of, shapes_of
from trafficdp.export.files import tables
from trafficdp.export.files.tables import INSTANTS, to_geodataframe
from trafficdp.privacy.release import published_frame


def test_the_geodataframe_is_the_published_table_with_geometry_and_timestamps(any_release):
    made, published = to_geodataframe(any_release), published_frame(any_release)
    for name in INSTANTS:
        assert str(made[name].dtype) == "datetime64[ms, America/Chicago]"
        expected = [None if pd.isna(each) else datetime.fromisoformat(each) for each in published[name]]
        assert [None if pd.isna(each) else each.to_pydatetime() for each in made[name]] == expected
    left = pd.DataFrame(made.drop(columns=["geometry", *INSTANTS]))
    pd.testing.assert_frame_equal(left, published.drop(columns=[*INSTANTS]))
    assert made.crs.to_epsg() == 4326
    assert made.geometry.is_valid.all()


def test_every_row_has_the_polygon_of_its_own_cell(rush_hours):
    made = to_geodataframe(rush_hours)
    assert all(made.geometry.to_numpy() == polygons_of(rush_hours.cell))


def test_polygons_are_computed_once_a_cell(rush_hours, monkeypatch):
    asked = []

    def counting(cells, zones):
        asked.append(len(cells))
        return shapes_of(cells, zones)

    monkeypatch.setattr(tables, "shapes_of", counting)
    to_geodataframe(rush_hours)
    assert asked == [len(np.unique(rush_hours.cell))]
