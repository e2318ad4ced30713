"""Times by module, function and line: of real programs, recorded in their own process."""

import shutil
import sys
from pathlib import Path

import pytest

from roofwatch.collector.profiling.attribution import (
    AttributedTime,
    StepAttribution,
    read_attributions,
)
from roofwatch.collector.profiling.captured import CapturedProcess
from roofwatch.collector.profiling.profile_program import RecordingWindow, profile_program
from roofwatch.collector.redaction import Redaction

QUANTISED = """import torch


class Quantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        levels = torch.linspace(-1, 1, 33)
        distances = (x.unsqueeze(-1) - levels).abs()
        return levels[distances.argmin(-1)]

    @staticmethod
    def backward(ctx, gradient):
        scale = 2.0
        return gradient * scale


class QuantisedLinear(torch.nn.Linear):
    def forward(self, x):
        weight = Quantise.apply(self.weight)
        return torch.nn.functional.linear(x, weight)


model = torch.nn.Sequential(*[QuantisedLinear(96, 96, bias=False) for _ in range(3)])
"""
OPTIMIZED = """
optimizer = torch.optim.SGD(model.parameters())
for _ in range(30):
    with torch.autograd.profiler.record_function("loss"):
        (loss,) = [model(torch.ones(4, 96)).sum() for _ in range(1)]
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
BY_HAND = """
for _ in range(30):
    model(torch.ones(4, 96)).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
"""
WITHOUT_GRADIENTS = """
import copy

with torch.inference_mode():
    for _ in range({pass_count}):
        model(torch.ones(4, 96))
        copied = copy.deepcopy(model)
"""
IN_SCOPES = """
from torch.autograd.profiler import profile, record_function

optimizer = torch.optim.SGD(model.parameters())
open_scopes = []
enter, leave, start = record_function.__enter__, record_function.__exit__, profile.__enter__


def enter_and_note(scope):
    open_scopes.append(scope)
    return enter(scope)


def leave_and_note(scope, *exception):
    open_scopes.remove(scope)
    return leave(scope, *exception)


def start_outside(session):
    assert not open_scopes, "a scope that began in an earlier session is open"
    return start(session)


record_function.__enter__ = enter_and_note
record_function.__exit__ = leave_and_note
profile.__enter__ = start_outside
for _ in range(10):
    with record_function("three steps"):
        for _ in range(3):
            model(torch.ones(4, 96)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""
FAILING_PROFILER = """
from torch.autograd.profiler import profile

stop = profile.__exit__
failures = iter(range({failure_count}))


def fail_to_join_stacks(self, *exception):
    stop(self, *exception)
    if self.with_stack and next(failures, None) is not None:
        raise IndexError("Argument passed to at() was not in the map.")


profile.__exit__ = fail_to_join_stacks
"""


def profiled(
    folder: Path,
    script: str,
    errors: tuple[str, ...] = (),
    for_s: float | None = RecordingWindow.for_s,
) -> CapturedProcess:
    (folder / "train.py").write_text(script)
    capture = profile_program(
        [sys.executable, str(folder / "train.py")],
        folder / "profile",
        window=RecordingWindow(warmup_steps=None, for_s=for_s),
        redaction=Redaction(),
    )
    (process,) = capture.processes
    assert process.errors == errors
    return process


def named(times: tuple[AttributedTime, ...], name: str) -> AttributedTime:
    (time,) = [time for time in times if time.name == name]
    return time


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> StepAttribution:
    process = profiled(tmp_path_factory.mktemp("quantised"), QUANTISED + OPTIMIZED)
    (host,) = process.attributions
    return host


@pytest.mark.slow
def test_a_module_has_the_time_of_both_passes_of_its_operators(
    step: StepAttribution,
) -> None:
    layer = named(step.modules, "Sequential.*")

    assert (layer.detail, layer.call_count) == ("QuantisedLinear", 3)
    assert layer.forward_ns > 0
    assert layer.backward_ns > 0
    assert layer.inclusive_ns <= named(step.modules, "Sequential").inclusive_ns <= step.total_ns


@pytest.mark.slow
def test_an_autograd_function_has_the_time_inside_it(step: StepAttribution) -> None:
    function = named(step.functions, "Quantise")

    assert function.call_count == 3
    assert function.backward_ns > 0
    inside_ns = sum(named(step.lines, f"train.py:{line}").forward_ns for line in (7, 8, 9))
    assert function.forward_ns >= inside_ns > function.forward_ns / 2


@pytest.mark.slow
def test_a_python_function_has_the_time_of_all_that_it_calls(step: StepAttribution) -> None:
    forward = named(step.calls, "QuantisedLinear.forward")
    quantised = named(step.calls, "Quantise.forward")

    assert (forward.detail, forward.call_count) == ("train.py:18", 3)
    assert forward.inclusive_ns > quantised.inclusive_ns > 0
    assert forward.backward_ns > 0


@pytest.mark.slow
def test_own_time_of_a_function_leaves_out_modules_inside_it(tmp_path: Path) -> None:
    script = """import torch

model = torch.nn.Linear(512, 512)


def run(x):
    return model(x).sum()


for _ in range(30):
    run(torch.ones(512, 512)).backward()
"""
    process = profiled(tmp_path, script)

    (host,) = process.attributions
    run = named(host.calls, "run")
    layer = named(host.modules, "Linear")
    assert run.innermost_ns + layer.innermost_ns <= run.inclusive_ns
    assert named(host.lines, "train.py:7").inclusive_ns >= layer.inclusive_ns


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_code_that_torch_compile_generates_is_not_the_program_s(tmp_path: Path) -> None:
    script = """import torch


@torch.compile
def step(weight, x):
    return torch.sigmoid(x @ weight).sum()


weight = torch.ones(64, 64, requires_grad=True)
optimizer = torch.optim.SGD([weight])
for _ in range(30):
    step(weight, torch.ones(64, 64)).backward()
    optimizer.step()
"""
    process = profiled(tmp_path, script)

    (host,) = process.attributions
    assert host.lines
    assert {line.name.partition(":")[0] for line in host.lines} == {"train.py"}
    assert {call.detail.partition(":")[0] for call in host.calls} <= {"train.py"}


@pytest.mark.slow
def test_time_inside_an_annotation_counts_once(step: StepAttribution) -> None:
    assert sum(line.innermost_ns for line in step.lines) <= step.total_ns


@pytest.mark.slow
def test_a_line_with_a_comprehension_counts_once(step: StepAttribution) -> None:
    """It counted twice: as a line of its function, and as one of the comprehension."""
    longest = max(step.lines, key=lambda line: line.inclusive_ns)

    assert longest.inclusive_ns <= step.total_ns
    assert sum(line.name == longest.name for line in step.lines) == 1


@pytest.mark.slow
def test_a_line_without_calls_is_found_by_its_operator(step: StepAttribution) -> None:
    # `gradient * scale` is no call that a profiler of Python sees
    assert named(step.lines, "train.py:14").detail == "backward"


@pytest.mark.slow
def test_lines_of_installed_packages_are_left_out(step: StepAttribution) -> None:
    assert {line.name.partition(":")[0] for line in step.lines} == {"train.py"}


@pytest.mark.slow
def test_backward_passes_are_the_steps_of_a_program_without_an_optimizer(tmp_path: Path) -> None:
    process = profiled(tmp_path, QUANTISED + BY_HAND)

    (host,) = process.attributions
    assert named(host.functions, "Quantise").call_count == 3
    steps = process.traces[-1].steady
    assert steps is not None
    assert steps.steps_are == "repeated operators"


@pytest.mark.slow
def test_forward_passes_are_the_steps_of_a_program_without_backward_passes(tmp_path: Path) -> None:
    process = profiled(tmp_path, QUANTISED + WITHOUT_GRADIENTS.format(pass_count=30))

    (host,) = process.attributions
    assert named(host.modules, "Sequential.*").call_count == 3
    assert named(host.functions, "Quantise").call_count == 3
    assert [trace.part for trace in process.traces] == ["start-up", "window"]
    assert process.traces[-1].steady is not None


@pytest.mark.slow
def test_an_evaluation_before_the_training_belongs_to_the_start_up(tmp_path: Path) -> None:
    evaluation = WITHOUT_GRADIENTS.format(pass_count=10)

    process = profiled(tmp_path, QUANTISED + evaluation + OPTIMIZED)

    (host,) = process.attributions
    assert named(host.modules, "Sequential.*").backward_ns > 0
    assert {trace.part for trace in process.traces[:-1]} == {"start-up"}
    window = process.traces[-1]
    assert window.part == "window"
    assert window.steady is not None
    assert window.steady.steps_are == "optimizer steps"


@pytest.mark.slow
def test_a_later_forward_pass_is_recorded_with_stacks_too(tmp_path: Path) -> None:
    growing = """import torch

model = torch.nn.Linear(8, 8)
cache = torch.ones(1, 8)


def grow(cache):
    return torch.cat([cache, cache[-1:]])


with torch.inference_mode():
    for _ in range(1_000):
        cache = grow(cache)
        model(cache)
        for _ in range(len(cache)):
            cache[:1].add_(1)
"""
    process = profiled(tmp_path, growing, for_s=1.0)

    (host,) = process.attributions
    assert named(host.calls, "grow").call_count == 1
    # one operator for each row of the cache, which has 4 rows at the third pass
    assert named(host.lines, "train.py:16").call_count > 10


@pytest.mark.slow
def test_a_session_begins_only_where_no_scope_of_an_earlier_one_is_open(tmp_path: Path) -> None:
    process = profiled(tmp_path, QUANTISED + IN_SCOPES)

    (host,) = process.attributions
    assert named(host.functions, "Quantise").call_count == 3
    assert [trace.part for trace in process.traces] == ["start-up", "window"]
    assert process.traces[-1].steady is not None


@pytest.mark.slow
def test_start_up_is_kept_apart_from_the_steps(tmp_path: Path) -> None:
    process = profiled(tmp_path, QUANTISED + OPTIMIZED)

    start_up, window = process.traces
    assert (start_up.part, window.part) == ("start-up", "window")
    assert window.steady is not None
    assert window.steady.steps_are == "optimizer steps"
    assert window.time.window_ns < window.recorded_ns


@pytest.mark.slow
def test_a_step_whose_stacks_are_lost_is_recorded_again(tmp_path: Path) -> None:
    failing = FAILING_PROFILER.format(failure_count=2)

    process = profiled(tmp_path, QUANTISED + failing + OPTIMIZED)

    (host,) = process.attributions
    assert named(host.functions, "Quantise").call_count == 3
    assert process.traces[-1].steady is not None


@pytest.mark.slow
def test_operators_are_kept_if_all_stacks_are_lost(tmp_path: Path) -> None:
    failing = FAILING_PROFILER.format(failure_count=3)
    lost = (
        "torch's profiler could not join Python stacks. Lost: times by module, function and line; "
        "times of operators are complete (IndexError: Argument passed to at() was not in the map.)"
    )

    process = profiled(tmp_path, QUANTISED + failing + OPTIMIZED, errors=(lost,))

    assert process.attributions == ()
    window = process.traces[-1]
    assert window.part == "window"
    assert window.steady is not None


def test_a_range_of_lines_is_kept_if_the_source_is_gone(tmp_path: Path) -> None:
    row = {
        "kind": "line",
        "name": "gone.py",
        "detail": "forward",
        "first_line": 3,
        "last_line": 7,
        "call_count": 1,
        "forward_ns": 5,
        "backward_ns": 0,
        "innermost_ns": 5,
    }
    times = {"host": {"total_ns": 5, "rows": [row]}, "device": {"total_ns": 0, "rows": []}}
    (host,) = read_attributions(times, [tmp_path], str)

    assert [line.name for line in host.lines] == ["gone.py:3-7"]
