"""What executors do to a file, without Spark: it is refused for its rows only where counts are public."""

import pyarrow as pa
import pytest

from trafficdp.engine.spark_rows import Reduction, rows_of_files
from trafficdp.errors import TrafficdpError
from trafficdp.ingest.vehicle_key import VehicleKey


@pytest.mark.parametrize("refuse_by_rows", [True, False])
def test_a_file_without_a_row_is_refused_only_where_counts_are_public(city, refuse_by_rows):
    config = city.open().config
    header = city.days[1].read_text(encoding="utf-8").splitlines()[0]
    batch = pa.record_batch({"number": [0], "name": ["day.csv"], "content": [f"{header}\n".encode()]})
    job = Reduction.of(config.sources[0], config.grid, config.map.bound, refuse_by_rows=refuse_by_rows)
    noted = []
    rows = rows_of_files(
        iter([batch]), job, lambda: VehicleKey.load(city.key), lambda *each: noted.append(each)
    )
    if refuse_by_rows:
        with pytest.raises((TrafficdpError, RuntimeError), match="no rows"):
            list(rows)
    else:
        assert sum(map(len, rows)) == 0
        assert [facts.rows_in for _, facts in noted] == [0]
