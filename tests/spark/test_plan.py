"""The plan is the one that is promised: a scan, one exchange of keyed rows, sums."""

import re

import pytest

from trafficdp.engine.spark_job import contributions
from trafficdp.engine.spark_rows import SPARK_ROWS

pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.xdist_group("spark"),
]


def steps(frame):
    """Return the physical plan's steps, from the scan up."""
    text = frame._jdf.queryExecution().sparkPlan().toString()
    executed = frame._jdf.queryExecution().executedPlan().toString()
    assert "AdaptiveSparkPlan" in executed or text
    return list(reversed(re.findall(r"^[ :+\-*()\d]*([A-Za-z]+)", executed, flags=re.MULTILINE)))


@pytest.mark.parametrize("earlier", [False, True])
def test_one_exchange_of_keyed_rows_whatever_came_before(spark, tmp_path, earlier):
    raw = tmp_path / "raw"
    spark.range(10).selectExpr("cast(id as string) as plate").write.parquet(str(raw))
    rows = spark.read.parquet(str(raw)).mapInArrow(lambda batches: batches, SPARK_ROWS)
    found = contributions(rows, spark.createDataFrame([], SPARK_ROWS) if earlier else None)
    plan = steps(found)
    assert plan.count("Exchange") == 1
    assert "MapInArrow" in plan[: plan.index("Exchange")]
    assert "BroadcastExchange" not in plan
    # what is summed is never shuffled again, and no column function queues raw rows
    assert plan.index("Exchange") < min(i for i, step in enumerate(plan) if step.endswith("Aggregate"))
    assert not any("Eval" in step for step in plan)
    text = found._jdf.queryExecution().executedPlan().toString()
    (exchange,) = re.findall(r"Exchange hashpartitioning\(([^)]*)\)", text)
    assert re.sub(r"#\d+L?", "", exchange).split(", ")[:2] == ["vehicle", "slot"]
