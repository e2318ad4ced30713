"""Tests of one group run in one worker of pytest's, so that what they share is made once."""

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there are no workers to share tests out to")
@pytest.mark.xdist_group("told")
def test_workers_tell_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    # tests are shared out by this name alone, which pytest 9.2 and pytest-xdist 3.8 leave without the group
    assert request.node.nodeid.endswith("@told")
