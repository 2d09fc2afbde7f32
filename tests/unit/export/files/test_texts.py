"""Columns as text: what each value becomes alone, whatever the others are."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest

from trafficdp.export.files.tables import column_texts, csv_bytes, geojson_bytes, geojson_columns, reasons
from trafficdp.privacy.release import published_frame

COLUMNS = [
    pd.Series([1.5, np.nan, -0.0, 0.0, 1e-7, 1.5, 123456.789]),
    pd.Series([3, None, 3, 2**62], dtype="Int64"),
    pd.Series([7, 7, -1], dtype="int64"),
    pd.Series(['a, "b"', None, "è\r\n", "", "plain"], dtype="str"),
    pd.Series([None, None], dtype="object"),
    pd.Series([], dtype="str"),
]


@pytest.mark.parametrize("column", COLUMNS)
def test_every_value_is_written_as_it_would_be_alone(column):
    def alone(value):
        return repr(None if pd.isna(value) else value + 0.0 if isinstance(value, float) else value)

    assert column_texts(column, repr) == [alone(each) for each in column.tolist()]


def test_each_different_value_is_written_once():
    told = []
    column_texts(pd.Series([2.0, 5.0] * 500), lambda value: told.append(value) or "x")
    assert told == [2.0, 5.0, None]


def test_files_read_back_as_the_published_table(any_release):
    table = published_frame(any_release)
    lines = list(csv.reader(io.StringIO(csv_bytes(any_release).decode(), newline="")))
    assert lines[0] == [*table.columns]
    expected = [
        ["" if pd.isna(value) else str(value + 0 if isinstance(value, float) else value) for value in row]
        for row in table.astype(object).itertuples(index=False)
    ]
    assert lines[1:] == expected
    read = [each["properties"] for each in json.loads(geojson_bytes(any_release))["features"]]
    table["reason"] = [reasons(any_release)[status] for status in table["status"]]
    wanted = table[geojson_columns(any_release)].astype(object)
    assert read == [
        {name: None if pd.isna(value) else value for name, value in row.items()}
        for row in wanted.to_dict("records")
    ]
