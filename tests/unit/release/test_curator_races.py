"""Many releases at once and a disk that fails: nobody overspends, and a charge is never lost or doubled."""

import os

import pytest

from trafficdp.errors import StoreUnavailableError, UsageError

PICO = 10**12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "budget", "fit"), [(2, 9, 1), pytest.param(8, 25, 3, marks=pytest.mark.prove(minutes=3))]
)
def test_racing_releases_never_overspend_and_never_crash(
    filled, small_city, two_cities, processes, budget, fit
):
    filled.open(budget=budget)
    command = "--config", filled.config, "release", "--yes", "--again", "--force"
    texts = [filled.folder / f"said {number}" for number in range(processes)]
    racing = [small_city.forked(command, stderr=text) for text in texts]
    codes = [small_city.ended(each) for each in racing]
    for code, text in zip(codes, texts, strict=True):
        said = text.read_text(encoding="utf-8")
        assert len(said.splitlines()) == (1 if code else 0), said
    assert sorted(codes) == [0] * fit + [3] * (processes - fit)
    assert max(small_city.spent(filled).values()) == fit * 8 * PICO <= budget * PICO
    workspace = filled.open()
    names = [each.id for each in workspace.releases()]
    assert names == [f"r{number:04d}" for number in range(1, fit + 1)]
    assert all(check.passed for name in names for check in workspace.verify(name))
    assert filled.sql("SELECT count(*) FROM releases", database="released") == [(fit,)]


ERRORS = {"ENOSPC": 28, "EFBIG": 27, "EROFS": 30}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "name", "stride"),
    [
        ("replace", "ENOSPC", 9),
        ("fsync", "EFBIG", 18),
        ("open", "EROFS", 16),
        *(
            pytest.param(step, name, 1, marks=pytest.mark.prove(minutes=4))
            for step, name in (("replace", "ENOSPC"), ("fsync", "EFBIG"), ("open", "EROFS"))
        ),
    ],
)
def test_a_failing_disk_costs_nothing_or_is_mended(released, monkeypatch, small_city, step, name, stride):
    workspace = released.open(budget=1000)
    real, whole = getattr(os, step), released.dump()
    complete = {path.name for path in (released.store / "releases" / "r0001").iterdir()}
    failures = 0
    for number in range(1, 40, stride):
        count = 0

        def failing(*arguments, nth=number, **options):
            nonlocal count
            count += 1
            if count == nth:
                raise OSError(ERRORS[name], os.strerror(ERRORS[name]))
            return real(*arguments, **options)

        before = small_city.spent(released)
        with monkeypatch.context() as patched:
            patched.setattr(os, step, failing)
            try:
                workspace.release(again=True, force=True)
            except (StoreUnavailableError, UsageError) as error:
                caught = error
            else:
                if count < number:
                    break
                # it did not matter here
                whole = released.dump()
                continue
        failures += 1
        assert caught.exit_code == 6
        folders = (released.store / "releases").iterdir()
        assert all({path.name for path in folder.iterdir()} == complete for folder in folders)
        if small_city.spent(released) == before:
            assert released.dump() == whole
        # the next command mends it, without another charge
        charged = small_city.spent(released)
        assert {each.status for each in released.open().releases()} == {"published"}
        assert small_city.spent(released) == charged
        whole = released.dump()
    assert failures >= 1
    newest = released.open().releases()[-1].id
    assert all(check.passed for check in released.open().verify(newest))
