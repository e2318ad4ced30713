from collections.abc import Iterator

import pytest

from tests.ci.github.stand_in import GitHubStandIn, open_github


@pytest.fixture
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client waits, in seconds: it is noted and passes at once."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    return waits


@pytest.fixture
def github() -> Iterator[GitHubStandIn]:
    with open_github() as stand_in:
        yield stand_in
