"""What the tests of kernels leave behind on a GPU that several processes test on.

Spills with Triton 3.6 need no GPU: test_every_launch_compiles_for_every_target_without_spilling, which
is slow, finds them under `make test-oldest MARKS=`. The backward pass of attention spills 8 bytes there.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.kernels import conftest


def test_memory_of_a_gpu_is_given_back_after_each_test(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty_cache"))
    fixture: Any = conftest.device
    request = cast(pytest.FixtureRequest, SimpleNamespace(param="cuda"))

    during_test = fixture._get_wrapped_function()(request)
    assert next(during_test) == "cuda"
    assert calls == []
    assert next(during_test, None) is None

    assert calls == ["synchronize", "empty_cache"]
