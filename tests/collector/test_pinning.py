"""Autotuned functions use pinned configurations: Triton's own autotuner, whose launches are noted
and not made.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from roofwatch.collector.pinning import pinning
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.model.measurement import Autotuning
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.timing_method import SamplingPlan
from tests.builders import make_commit
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
def test_the_pinned_configuration_is_the_one_that_is_launched(
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


@pytest.mark.gpu
def test_both_sides_of_a_pair_use_what_the_base_chose(fork_server: ForkServer) -> None:
    suite = Path(__file__).parents[1] / "suites" / "bench_tuned.py"
    plan = RunPlan(
        targets=(),
        block_count=2,
        pins_autotuner=True,
        sampling=SamplingPlan(warmup_ms=1, budget_ms=1, min_samples=3, max_samples=3),
    )
    sides = [
        SuiteAt(SuiteSource(suite, (suite.parent,)), make_commit(number), "pairs")
        for number in (1, 2)
    ]
    base, head = measure(sides, plan, fork_server=fork_server)

    (base_choice,) = base.measurements[0].autotuning
    (head_choice,) = head.measurements[0].autotuning
    assert base_choice.is_pinned
    assert base_choice == head_choice
