"""Analysts read while releases are published: each sees whole maps, and nobody meets an error or waits."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore

import pytest

from trafficdp.store.analyst import AnalystSession

pytestmark = pytest.mark.usefixtures("two_cities")

SEEN = """SELECT release_id, count(*) AS bins, count(speed_mean_kmh) AS numbers, ledger_sequence
FROM releases JOIN cells USING (release_id) GROUP BY ALL ORDER BY release_id"""
"""What is seen of every release; a release without its rows is not there."""
LISTED = "SELECT count(*) FROM releases"
RELEASES = 3


def seen(session):
    """Return what one session sees of each release, and how many it is told of."""
    return tuple(map(tuple, (row.values() for row in session.run(SEEN).to_pylist()))), session.run(LISTED)[0][
        0
    ].as_py()


@pytest.mark.parametrize("analysts", [6, pytest.param(100, marks=pytest.mark.prove(minutes=4))])
def test_whoever_reads_while_a_release_is_published_sees_whole_releases(released, analysts):
    workspace, stop, opening = released.open(budget=100), Event(), Semaphore(4)

    def opened():
        # of a hundred processes that begin at once, some would take too long
        with opening:
            return AnalystSession(released.released, timeout=600)

    def read(_):
        """Read with one session until all is published, then with another."""
        found = []
        with opened() as session:
            while not stop.is_set():
                found.append(seen(session))
                stop.wait(0.2)
            found.append(seen(session))
        with opened() as session:
            found.append(seen(session))
        return found

    with ThreadPoolExecutor(analysts) as pool:
        reading = [pool.submit(read, number) for number in range(analysts)]
        try:
            for _ in range(RELEASES):
                workspace.release(again=True, force=True)
        finally:
            stop.set()
        found = [each.result() for each in reading]
    last = found[0][-1][0]
    assert len(last) == 1 + RELEASES
    assert len({bins for _, bins, _, _ in last}) == 1
    whole = {last[:number] for number in range(1, len(last) + 1)}
    for answers in found:
        assert {maps for maps, _ in answers} <= whole
        assert all(told == len(maps) for maps, told in answers)
        # a session stays with the file that it opened, the next one has the newest
        assert len({maps for maps, _ in answers[:-1]}) == 1
        assert answers[-1] == (last, 1 + RELEASES)
