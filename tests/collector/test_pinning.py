"""Autotuned functions use pinned configurations: Triton's own autotuner, whose launches are noted
and not made.
"""

from typing import Any

import pytest
import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from roofwatch.collector.pinning import pinning
from roofwatch.model.measurement import Autotuning
from tests.suites.tuned_function import scale

SMALL, LARGE = (
    {"BLOCK": block, "num_warps": warps, "num_ctas": 1, "num_stages": 3}
    for block, warps in ((32, 4), (128, 8))
)


@pytest.fixture
def launched_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    blocks: list[int] = []
    monkeypatch.setattr(JITFunction, "run", lambda *_, **given: blocks.append(given["BLOCK"]))
    # an untuned function takes the first configuration, as if it were the fastest
    monkeypatch.setattr(scale, "cache", {(256, "torch.float32"): scale.configs[0]})
    return blocks


def choose(configuration: dict[str, Any], key: str = "256, torch.float32") -> Autotuning:
    return Autotuning(function="scale", key=key, chosen=configuration)


def call() -> None:
    scale[(1,)](torch.zeros(256), 256)


@pytest.mark.parametrize("key", ["256, torch.float32", "", "another key"])
def test_the_pinned_configuration_is_launched_and_said(
    launched_blocks: list[int], key: str
) -> None:
    original = Autotuner.run
    with pinning([choose(LARGE, key)]) as used:
        call()

    assert launched_blocks == [128]
    (choice,) = used
    assert (choice.chosen, choice.is_pinned) == (LARGE, True)
    assert choice.key == "256, torch.float32"
    assert Autotuner.run is original


@pytest.mark.parametrize(
    "choices",
    [
        [],
        [choose({**LARGE, "BLOCK": 64})],
        [Autotuning(function="other", chosen=LARGE)],
        [choose(LARGE, "512"), choose(SMALL, "1024")],
    ],
    ids=["none", "the head lacks it", "another function", "other keys"],
)
def test_a_function_without_a_choice_is_tuned_as_usual(
    launched_blocks: list[int], choices: list[Autotuning]
) -> None:
    with pinning(choices) as used:
        call()

    assert launched_blocks == [32]
    assert used == []
