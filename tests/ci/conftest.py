"""Properties are checked on the same examples every time, and however slow the machine is."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.ci.forges.stand_in import GitHubStandIn, open_github

settings.register_profile("judgement", derandomize=True, deadline=None)
settings.load_profile("judgement")


@pytest.fixture
def github() -> Iterator[GitHubStandIn]:
    with open_github() as stand_in:
        yield stand_in


@pytest.fixture
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client of GitHub waits, in seconds: it is noted and passes at once."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    return waits
