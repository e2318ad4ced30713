"""Two runs of one case, and the best implementation."""

from __future__ import annotations

from typing import Any

from roofwatch.ci.ab.side_by_side import SideBySide, code_diff, find_best, side_by_side
from roofwatch.collector.record.measurement import Autotuning, Measurement, Timer
from roofwatch.db.values import Verdict
from tests.builders import (
    CASE_ID,
    make_blocks,
    make_environment,
    make_measurement,
    make_record,
    make_static_facts,
)


def compared(base: dict[str, Any], head: dict[str, Any]) -> SideBySide:
    return side_by_side(make_record(0, **base), make_record(1, **head), CASE_ID, "torch")


def test_only_changed_machine_code_of_the_implementation_is_listed() -> None:
    before = [make_static_facts(implementation="torch", target=target) for target in ("sm_80", "sm_90")]
    after = [before[0], make_static_facts(implementation="torch", target="sm_90", code="another", registers=64)]
    other = make_static_facts(implementation="triton", code="of another implementation")
    found = compared({"static_facts": before}, {"static_facts": [*after, other]})
    assert [(judged.target, judged.moved_facts) for judged in found.code] == [("sm_90", ("registers",))]
    assert found.unchanged_code_count == 1


def test_autotuner_choices_and_environments_are_compared_the_toolchain_first() -> None:
    def tuned(block: int) -> object:
        return make_measurement(autotuning=(Autotuning(function="k", chosen={"BLOCK": block}),))

    newer = make_environment(os="Linux 6.9", triton_version="3.8.0", cuda_version="13.1")
    found = compared({"measurements": [tuned(64)]}, {"measurements": [tuned(128)], "environment": newer})
    assert [str(choice) for choice in found.choices] == ["the autotuner of k chose BLOCK=128 instead of BLOCK=64"]
    assert [(one.name, one.values[1], one.may_move_times) for one in found.environment] == [
        ("triton version", "3.8.0", True),
        ("cuda version", "13.1", True),
        ("os", "Linux 6.9", False),
    ]


def test_a_diff_of_disassemblies_is_shortened() -> None:
    before = "\n".join(f"line {number}" for number in range(100))
    diff, more = code_diff(before, before.replace("line 50", "another"), line_limit=5)
    whole, nothing = code_diff(before, before.replace("line 50", "another"), line_limit=1_000)
    assert diff == "\n".join(whole.splitlines()[:5])
    assert more == len(whole.splitlines()) - 5
    assert nothing == 0
    assert "-line 50" in whole
    assert "+another" in whole
    assert code_diff(before, before, line_limit=5) == ("", 0)


def timed(implementation: str, *medians_ns: float, **fields: Any) -> Measurement:
    return make_measurement(implementation=implementation, blocks=make_blocks(medians_ns), **fields)


def test_the_fastest_implementation_is_best() -> None:
    (best,) = find_best(
        [
            timed("torch", *[1_500.0] * 8),
            timed("triton", *[1_000.0, 1_002.0] * 4),
            timed("compile", *[1_200.0, 1_203.0] * 4),
        ]
    )

    assert (best.implementation, best.runner_up, best.median_ns) == ("triton", "compile", 1_001.0)
    assert best.comparison is not None
    assert best.comparison.verdict is Verdict.IMPROVED
    assert best.comparison.speedup > 1.19


def test_another_timer_is_no_runner_up() -> None:
    (best,) = find_best([timed("torch", 1_000.0), timed("triton", 900.0, timer=Timer.CUPTI)])

    assert (best.implementation, best.runner_up, best.comparison) == ("triton", None, None)
