"""When workers of a GPU inherit torch's compilers, where torch was built without CUDA too."""

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from roofwatch.collector.runs.measure import _needed_features
from roofwatch.collector.workers import fork_server

VARIABLE = "PYTORCH_NVML_BASED_CUDA_CHECK"


def features_of(*, is_compiled: bool, is_on_cpu: bool) -> list[fork_server.Feature]:
    """What workers load for a run of one case."""
    case = SimpleNamespace(
        implementation=SimpleNamespace(is_compiled=is_compiled),
        case=SimpleNamespace(direction="fwd"),
    )
    run = SimpleNamespace(cases={"subject": case}, to_check=[case], is_on_cpu=is_on_cpu)
    return _needed_features(cast("Any", run))


def test_a_run_on_a_gpu_loads_the_compilers_before_its_workers_fork() -> None:
    assert features_of(is_compiled=True, is_on_cpu=False) == ["torch_compile_beside_gpu"]


def test_a_run_without_torch_compile_loads_no_compilers() -> None:
    assert features_of(is_compiled=False, is_on_cpu=False) == []


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The variable each time that the compilers are loaded, with a torch that has CUDA."""
    values: list[str | None] = []
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 1)
    monkeypatch.setattr(
        fork_server, "_load_torch_compile", lambda: values.append(os.environ.get(VARIABLE))
    )
    return values


@pytest.mark.parametrize("wished", [None, "0"])
def test_nvml_answers_for_cuda_only_while_the_compilers_load(
    wished: str | None, seen: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if wished is not None:
        monkeypatch.setenv(VARIABLE, wished)

    fork_server._load_torch_compile_beside_gpu()

    assert seen == ["1"]
    assert os.environ.get(VARIABLE) == wished


def test_without_nvml_the_compilers_are_left_to_the_workers(
    seen: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: -1)

    fork_server._load_torch_compile_beside_gpu()

    assert seen == []
