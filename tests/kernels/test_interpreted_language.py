"""How the interpreter replaces the functions of `triton.language` while a kernel runs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.conftest import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels are compiled here")
ROUND_COUNT = 8


@triton.jit
def _sums_kernel(x_ptr, y_ptr, ROUNDS: tl.constexpr, FAILS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 4))  # [4]
    total = 0.0
    for _ in range(ROUNDS):
        total += tl.sum(x)
    if FAILS:
        tl.static_assert(False)
    tl.store(y_ptr, total)


def sums(*, fails: bool = False, device: str) -> float:
    y = torch.zeros(1, device=device)
    _sums_kernel[(2,)](torch.ones(4, device=device), y, ROUND_COUNT, fails)
    return y.item()


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modules of the functions for which Triton patches the language."""
    from roofwatch.collector.accuracy import interpreter

    modules: list[str] = []
    patch: Callable[[Any], Any] = interpreter._original_patch_language

    def noted(function: Any) -> Any:
        modules.append(function.__module__)
        return patch(function)

    monkeypatch.setattr(interpreter, "_original_patch_language", noted)
    return modules


def test_a_launch_patches_the_language_once_for_each_module(patched: list[str], device: str):
    assert sums(device=device) == 4 * ROUND_COUNT

    assert sorted(patched) == [__name__, "triton.language.standard"]


def test_each_launch_patches_the_language_anew(patched: list[str], device: str):
    sums(device=device)
    sums(device=device)

    assert patched.count(__name__) == 2


def test_the_language_is_restored_after_a_launch(device: str):
    sums(device=device)

    assert tl.core.is_builtin(tl.load)


def test_a_kernel_runs_after_one_that_failed(device: str):
    with pytest.raises(Exception, match="AssertionError"):
        sums(fails=True, device=device)

    assert sums(device=device) == 4 * ROUND_COUNT
