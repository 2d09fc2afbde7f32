from trafficdp.model import as_json
from trafficdp.privacy.disclosure import Software


def test_a_commit_that_is_not_known_is_left_out():
    assert as_json(Software(name="trafficdp", version="1")) == {"name": "trafficdp", "version": "1"}
