import platform

import pytest

from roofwatch.collector.device.machine import HIDE_VARIABLE, machine_hash


def test_each_part_of_a_machine_changes_its_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = machine_hash("owner/kernels", "GPU-1")
    assert here == machine_hash("owner/kernels", "GPU-1")
    others = {machine_hash("owner/kernels", "GPU-2"), machine_hash("owner/other", "GPU-1")}
    monkeypatch.setattr(platform, "node", lambda: "another host")
    others.add(machine_hash("owner/kernels", "GPU-1"))
    assert len(others - {here}) == 3


def test_a_variable_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_VARIABLE, "1")
    assert machine_hash("owner/kernels", "GPU-1") is None
