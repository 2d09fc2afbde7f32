"""Streams killed at any instant say what they would have said."""

import pytest

pytestmark = pytest.mark.xdist_group("streams")


@pytest.fixture(scope="module")
def findings_of(started, tmp_path_factory):
    """``findings_of(files, task, ...)``: what the driver, which starts once for so many files, finds."""
    drivers = {}

    def findings_of(files, *task):
        if files not in drivers:
            drivers[files] = started("stream_driver.py", tmp_path_factory.mktemp("streams"), str(files))
        findings, said = drivers[files](*task)
        print({name: findings[name] for name in ("deaths", "streams", "stages")})
        assert findings["problems"] == [], said[-2000:]
        return findings

    return findings_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "count"), [(4, 8), pytest.param(14, 200, marks=pytest.mark.prove(minutes=8))]
)
def test_a_stream_killed_at_random_instants_publishes_what_it_would_have(findings_of, files, count):
    findings = findings_of(files, "random", count, 20260303)
    assert findings["deaths"] == count
    # of the few publications that there are: deaths before the first, and after some
    assert findings["publications"] >= 2
    assert len(findings["stages"]) >= min(max(count // 5, 2), findings["publications"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "times", "stages"),
    [
        (4, (1,), {"before the first": 3, "after 1 publications": 2}),
        pytest.param(
            14,
            (1, 2, 5),
            {
                "before the first": 7,
                "after 1 publications": 2,
                "after 2 publications": 2,
                "after 5 publications": 2,
            },
            marks=pytest.mark.prove(minutes=2),
        ),
    ],
)
def test_a_stream_that_dies_at_a_boundary_goes_on(findings_of, files, times, stages):
    findings = findings_of(files, "boundaries", *times)
    # every boundary as often as it is asked for, but "charged", which comes once
    assert findings["stages"] == stages
