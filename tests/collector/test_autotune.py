"""What is kept of the choices of Triton's own autotuner, which here measures with given times and
launches nothing.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from roofwatch.collector.autotune import AutotuneRecorder, merged
from roofwatch.collector.compile.target_device import target_driver
from roofwatch.model.measurement import AutotuneTiming, Autotuning
from tests.suites.tuned_function import scale

SMALL, LARGE = (
    {"BLOCK": block, "num_warps": warps, "num_ctas": 1, "num_stages": 3}
    for block, warps in ((32, 4), (128, 8))
)
Tune = Callable[..., None]


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tune:
    """Call the tuned function with what each configuration takes, in ms."""
    monkeypatch.setattr(JITFunction, "run", lambda *_, **__: None)
    monkeypatch.setattr(driver, "_active", target_driver("sm_90"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(scale, "cache", {})

    def call(*times_ms: float, count: int = 256) -> None:
        left = list(times_ms)

        def bench(_call: Callable[[], object], quantiles: object) -> list[float]:
            return [left.pop(0), 0.0, 9.0]

        monkeypatch.setattr(scale, "_do_bench", bench)
        scale.__dict__.pop("do_bench", None)  # cached of the call before
        scale[(1,)](torch.zeros(count), count)

    return call


def test_a_choice_has_the_time_of_every_configuration(tune: Tune) -> None:
    with AutotuneRecorder().watching() as tuned:
        tune(0.004, 0.003)

    (choice,) = tuned
    assert (choice.function, choice.key) == ("scale", "256, torch.float32")
    assert choice.chosen == LARGE
    assert [timing.configuration for timing in choice.timings] == [SMALL, LARGE]
    assert [timing.time_ns for timing in choice.timings] == [
        pytest.approx(4_000),
        pytest.approx(3_000),
    ]
    assert choice.duration_ns > 0


def test_a_choice_made_by_another_case_keeps_its_times(tune: Tune) -> None:
    recorder = AutotuneRecorder()
    with recorder.watching() as first:
        tune(0.004, 0.003)
    with recorder.watching() as second:
        tune()
        tune(0.003, 0.004, count=512)

    assert second[0] == first[0]
    assert [choice.key for choice in second] == ["256, torch.float32", "512, torch.float32"]
    assert second[1].chosen == SMALL


def test_an_earlier_choice_is_cached_without_times(tune: Tune) -> None:
    tune(0.004, 0.003)
    with AutotuneRecorder().watching() as tuned:
        tune()

    assert (tuned[0].chosen, tuned[0].timings, tuned[0].duration_ns) == (LARGE, (), 0)


def test_a_choice_read_from_disk_is_cached_with_its_times(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "cache_results", True)
    with AutotuneRecorder().watching() as measured:
        tune(0.004, 0.003)
    monkeypatch.setattr(scale, "cache", {})
    with AutotuneRecorder().watching() as read:
        tune()

    assert measured[0].duration_ns > 0
    assert (read[0].chosen, read[0].timings) == (LARGE, measured[0].timings)
    assert read[0].duration_ns == 0


def test_triton_is_unchanged_afterwards(tune: Tune) -> None:
    original, cache = Autotuner.run, scale.cache
    recorder = AutotuneRecorder()
    with (
        recorder.watching() as tuned,
        pytest.raises(IndexError),
    ):  # there is no time for the second configuration
        tune(0.004)

    assert tuned == []
    assert Autotuner.run is original
    assert scale.cache is cache
    assert type(cache) is dict


def make_choice(block: int, *, times_ns: tuple[float, ...] = (), key: str = "256") -> Autotuning:
    timings = tuple(
        AutotuneTiming(configuration={"BLOCK": 32 * (1 + at)}, time_ns=t)
        for at, t in enumerate(times_ns)
    )
    return Autotuning(function="scale", key=key, chosen={"BLOCK": block}, timings=timings)


def test_equal_choices_of_several_processes_are_merged() -> None:
    same, timed, other = (
        make_choice(32),
        make_choice(32, times_ns=(1.0, 2.0)),
        make_choice(64, times_ns=(2.0, 1.0)),
    )

    assert merged((), (same, timed)) == (timed,)
    assert merged((timed,), (same,)) == (timed,)
    assert merged((timed,), (other, make_choice(32, key="512"))) == (
        timed,
        other,
        make_choice(32, key="512"),
    )


@pytest.mark.gpu
def test_a_measurement_on_a_gpu_has_the_tuned_configurations(tmp_path: Path) -> None:
    from tests.roofwatch.command import SUITES, started_roofwatch

    # a process that forks ready ones has loaded the server's packages, which a machine that only
    # measures lacks
    done = started_roofwatch(
        "run", SUITES / "bench_tuned.py", "--no-static", "--json", "-o", tmp_path / "record.json"
    )

    assert done.status == 0, done.error
    (measured,) = done.parsed["measurements"]
    (choice, *others) = measured["autotuning"]
    assert choice["function"] == "_add_one_kernel"
    assert len(choice["timings"]) == 2
    assert all(timing["time_ns"] > 0 for timing in choice["timings"])
    assert choice["chosen"]["BLOCK"] in {32, 1024}
    assert all(other["key"] == choice["key"] for other in others)
