"""Fleet economics."""

from __future__ import annotations

import pytest

from roofwatch.collector.record.record import RunRecord
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import RUN_COUNT
from tests.dashboard.seen import address, choice, figures, table, texts


def test_the_fleet_adds_up_device_time_and_energy(open_view: OpenView, records: list[RunRecord]) -> None:
    app = open_view("fleet")
    said = texts(app)
    # six runs and two sides of a pair, of 30 s each
    assert "Device time 4 min" in said
    assert "Energy of the devices 71.9 kJ" in said
    assert "no price set" in said
    runners = table(app, "per commit")
    assert runners["runs"].tolist() == [RUN_COUNT + 2]
    assert "money" not in runners.columns
    assert runners["checks"].item() == pytest.approx(9 / 30)


def test_a_price_turns_hours_into_money(
    open_view: OpenView, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_DEVICE_HOUR_PRICES", '{"NVIDIA H200*": 6.0}')
    monkeypatch.setenv("ROOFWATCH_CURRENCY", "EUR")
    app = open_view("fleet", show="runner-money")
    assert not app.exception
    assert "Money 0.40 EUR" in texts(app)
    assert table(app, "money")["money"].item() == pytest.approx(4 / 60 * 6.0)
    assert address(app)["show"] == ["runner-money"]


def test_the_bars_of_the_fleet_can_be_chosen(open_view: OpenView, records: list[RunRecord]) -> None:
    app = open_view("fleet")
    for show in ("runner", "family", "runner-energy", "family-energy", "activity"):
        choice(app, "Show").set_value(show).run()
        assert not app.exception
        assert address(app)["show"] == [show]
        assert figures(app) == 1
