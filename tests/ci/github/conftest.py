import pytest


@pytest.fixture
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client waits, in seconds: it is noted and passes at once."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    return waits
