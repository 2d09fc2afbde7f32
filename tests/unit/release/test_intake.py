"""A cluster's jobs: what Spark has not is refused, jobs that are there are named as they are."""

from pathlib import Path

import pytest

from trafficdp.errors import UsageError
from trafficdp.release.intake import Cluster


def test_jobs_that_were_reduced_elsewhere_are_imported_from_where_they_are():
    cluster = Cluster(None, Path("key"), Path("store"))
    assert cluster.jobs("reduced", "there/jobs", None, dry_run=False) == Path("there/jobs")
    with pytest.raises(UsageError, match="no dry run"):
        cluster.jobs("reduced", "there/jobs", None, dry_run=True)
    with pytest.raises(UsageError, match="unknown engine"):
        cluster.jobs("pandas", "there", None, dry_run=False)
