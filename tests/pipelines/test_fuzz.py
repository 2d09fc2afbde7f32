"""Inputs that fuzzing kept, and that once broke something, break nothing; nor do inputs beside them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searching import examples

import fuzz_targets

# GDAL warns of shapes, which is no error
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
KEPT = Path(__file__).parents[2] / "data" / "fuzz"
quick = settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_nothing_that_was_kept_breaks_a_reader(name, tmp_path):
    kept = [*fuzz_targets.seeds(name), *(each.read_bytes() for each in sorted((KEPT / name).glob("*")))]
    for content in kept:
        assert fuzz_targets.crash_of(name, content, tmp_path) is None, content


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
@quick
@given(data=st.data())
def test_a_changed_input_breaks_no_reader(name, tmp_path, data):
    content = data.draw(st.sampled_from(fuzz_targets.seeds(name)))
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 20)))
    changed = content[:start] + data.draw(st.binary(max_size=12)) + content[end:]
    assert fuzz_targets.crash_of(name, changed, tmp_path) is None, changed


def test_the_guide_says_how_many_inputs_there_were():
    total = (KEPT / "table.md").read_text(encoding="utf-8").splitlines()[-1].split("|")[2].strip()
    assert f"Of {total} inputs" in (KEPT.parents[1] / "docs" / "guides" / "feeds.md").read_text(
        encoding="utf-8"
    )


def test_every_corpus_is_of_a_reader():
    assert {each.name for each in KEPT.iterdir() if each.is_dir()} <= {*fuzz_targets.TARGETS}


def test_a_reader_that_breaks_is_seen(monkeypatch, tmp_path):
    monkeypatch.setitem(fuzz_targets.TARGETS, "head", lambda content, folder: 1 / len(content))
    assert isinstance(fuzz_targets.crash_of("head", b"", tmp_path), ZeroDivisionError)
