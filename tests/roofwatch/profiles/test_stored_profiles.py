"""The function that a profile names, and what two profiles of a program say together."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.collector.profiling.attribution import AttributedTime, StepAttribution
from roofwatch.collector.profiling.captured import (
    CapturedProcess,
    CapturedProgram,
    CapturedTrace,
)
from roofwatch.collector.profiling.steady import SteadyPart, StepKind
from roofwatch.collector.profiling.time_spent import TimeSpent
from roofwatch.model.errors import ProfileError
from roofwatch.profiles.report import ProfileReport, culprit_of, report_of
from roofwatch.profiles.stored_profiles import compare_profiles, find_earlier, store_profile

COMMAND = ("python", "train.py")


def make_time(name: str, *, inclusive_ns: int, own_ns: int, detail: str = "") -> AttributedTime:
    return AttributedTime(
        name=name,
        detail=detail,
        call_count=1,
        forward_ns=inclusive_ns,
        backward_ns=0,
        innermost_ns=own_ns,
    )


def make_step(*, rotary_ns: int, line_ns: int = 0) -> StepAttribution:
    """A block that contains most of a step of 100 ns, in a module and a function."""
    return StepAttribution(
        where="host",
        total_ns=100,
        modules=(make_time("Net.rotary", inclusive_ns=rotary_ns, own_ns=rotary_ns),),
        functions=(),
        calls=(
            make_time("Block.forward", inclusive_ns=95, own_ns=35, detail="model.py:30"),
            make_time(
                "Rotary.forward", inclusive_ns=rotary_ns, own_ns=rotary_ns, detail="model.py:10"
            ),
        ),
        lines=(make_time("model.py:34", inclusive_ns=line_ns, own_ns=line_ns),),
    )


def make_trace(step_ns: tuple[int, ...], *, cpu_ns: int) -> CapturedTrace:
    time = TimeSpent(
        window_ns=sum(step_ns),
        devices=(),
        kernels=(),
        transfers=(),
        median_launch_delay_ns=None,
        gaps=(),
        operators=(),
        marks=(),
        host_inside_ns=0,
    )
    return CapturedTrace(
        trace="trace.json.gz",
        pid=1,
        rank=None,
        command="train.py",
        device="cpu",
        end_reason="the program ended",
        part="window",
        recorded_ns=sum(step_ns),
        steady=SteadyPart(steps_are=StepKind.OPTIMIZER, step_ns=step_ns, start_ns=0),
        time=time,
        cpu_ns=cpu_ns,
    )


def store(
    folder: Path,
    step: StepAttribution,
    step_ns: tuple[int, ...],
    *,
    load: float = 0.0,
    cpu_ns: int = 300,
) -> None:
    report = ProfileReport(
        folder=str(folder),
        exit_status=0,
        summary="",
        notes=(),
        step=(step,),
        culprit=culprit_of(step),
        traces=(make_trace(step_ns, cpu_ns=cpu_ns),),
        kernels=(),
    )
    folder.mkdir()
    store_profile(report, COMMAND, load=load)


def test_the_culprit_is_the_function_with_most_time_of_its_own() -> None:
    culprit = culprit_of(make_step(rotary_ns=24))

    assert culprit is not None
    assert culprit.name == "Rotary.forward"


def test_a_line_of_a_container_that_takes_far_more_hides_the_function() -> None:
    assert culprit_of(make_step(rotary_ns=16, line_ns=35)) is None


def sentences_of(folder: Path, step: StepAttribution) -> str:
    process = CapturedProcess(
        pid=1,
        parent=0,
        torch_version="2.11.0",
        has_recorded=True,
        forked_count=0,
        traces=(make_trace((100, 100, 100), cpu_ns=300),),
        errors=(),
        attributions=(step,),
    )
    program = CapturedProgram(exit_status=0, was_ended=False, processes=(process,), kernels=())
    return report_of(program, folder).summary


def test_a_container_that_takes_most_itself_is_named_beside_the_culprit(tmp_path: Path) -> None:
    summary = sentences_of(tmp_path, make_step(rotary_ns=15))

    assert "The function Rotary.forward (model.py:10) takes 15% itself" in summary
    assert "most own time is Block.forward (model.py:30): 35%, with what it calls 95%" in summary


def test_a_line_with_many_calls_says_how_many(tmp_path: Path) -> None:
    step = make_step(rotary_ns=40, line_ns=20)
    looped = replace(step, lines=(replace(step.lines[0], call_count=64),))

    assert "model.py:34  20% (20%) in 64 calls" in sentences_of(tmp_path, looped)
    assert "calls" not in sentences_of(tmp_path, step).partition("Lines by")[2].partition(".")[0]


def test_a_mended_function_no_longer_stands_out(tmp_path: Path) -> None:
    store(tmp_path / "first", make_step(rotary_ns=40), (100, 110, 105))
    store(tmp_path / "second", make_step(rotary_ns=20), (60, 70, 65))

    comparison = compare_profiles(tmp_path / "first", tmp_path / "second")

    assert not comparison.stands_out
    assert "-38%" in comparison.summary()
    assert "overlap" not in comparison.summary()


def test_steps_whose_ranges_overlap_are_called_uncertain(tmp_path: Path) -> None:
    store(tmp_path / "first", make_step(rotary_ns=40), (100, 110, 105))
    store(tmp_path / "second", make_step(rotary_ns=5), (60, 130, 65))

    assert "overlap" in compare_profiles(tmp_path / "first", tmp_path / "second").summary()


def test_a_busy_machine_makes_the_size_of_the_change_uncertain(tmp_path: Path) -> None:
    store(tmp_path / "first", make_step(rotary_ns=40), (100, 110, 105), load=4.3)
    store(tmp_path / "second", make_step(rotary_ns=5), (60, 70, 65))

    assert "load 4.3" in compare_profiles(tmp_path / "first", tmp_path / "second").summary()


def test_the_processor_time_of_a_step_is_compared_too(tmp_path: Path) -> None:
    store(tmp_path / "first", make_step(rotary_ns=40), (100, 100, 100), cpu_ns=300)
    # the machine was busy: the steps took longer, but less was done in them
    store(tmp_path / "second", make_step(rotary_ns=5), (200, 200, 200), cpu_ns=150)

    summary = compare_profiles(tmp_path / "first", tmp_path / "second").summary()

    assert "100 ns -> 50 ns, -50%" in summary


def test_the_module_that_changed_most_comes_first(tmp_path: Path) -> None:
    store(tmp_path / "first", make_step(rotary_ns=40), (100, 110, 105))
    store(tmp_path / "second", make_step(rotary_ns=1), (60, 70, 65))

    summary = compare_profiles(tmp_path / "first", tmp_path / "second").summary()

    assert "base -> head: Net.rotary  40% -> 1%." in summary


def test_the_earlier_profile_is_one_of_the_same_command(tmp_path: Path) -> None:
    store(tmp_path / "first", make_step(rotary_ns=40), (100, 110, 105))

    assert find_earlier(tmp_path / "second", COMMAND) == tmp_path / "first"
    assert find_earlier(tmp_path / "second", ("python", "other.py")) is None


def test_another_function_stands_out_once_the_first_is_mended(tmp_path: Path) -> None:
    store(tmp_path / "first", make_step(rotary_ns=5), (100, 110, 105))
    store(tmp_path / "second", make_step(rotary_ns=20), (100, 110, 105))

    assert compare_profiles(tmp_path / "first", tmp_path / "second").stands_out


def test_a_folder_without_a_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError):
        compare_profiles(tmp_path, tmp_path)
