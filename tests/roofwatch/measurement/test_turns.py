"""Runners and watches of one machine take turns."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from roofwatch.measurement.turns import measuring_alone


def enter_in_thread(data_dir: Path) -> tuple[threading.Thread, threading.Event]:
    has_entered = threading.Event()

    def enter() -> None:
        with measuring_alone(data_dir):
            has_entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    return thread, has_entered


def test_the_next_measures_after_the_one_before(tmp_path: Path) -> None:
    with measuring_alone(tmp_path):
        thread, has_entered = enter_in_thread(tmp_path)
        assert not has_entered.wait(0.2)
    assert has_entered.wait(30)
    thread.join()


def test_processes_with_devices_of_their_own_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with measuring_alone(tmp_path):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        thread, has_entered = enter_in_thread(tmp_path)
        assert has_entered.wait(30)
        thread.join()
