"""What is compiled in parallel before anything is launched: the launches then compile nothing.

The launches are real up to the driver: arguments are specialised, tuners try their configurations
and Triton looks into its cache. The driver, which would need a GPU, does nothing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
import triton
from triton.backends.nvidia import driver as nvidia

from roofwatch.collector.accuracy.evaluation import make_inputs
from roofwatch.collector.compile.pretended_device import as_on_gpu
from roofwatch.collector.compile.target_device import active_driver, target_driver
from roofwatch.collector.runs.ahead import fill_caches
from roofwatch.collector.runs.case_run import CaseRun, select
from roofwatch.collector.runs.measure import _prepare
from roofwatch.collector.runs.run_plan import RunPlan, SpentTime, Steps
from roofwatch.collector.suite import load_suite
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import ImplementationInfo, WorkerSettings
from tests.builders import make_blocks, make_case
from tests.collector.stub_library import build_stub

TARGET = "sm_90"
LAUNCHES = """
import torch, triton, triton.language as tl
from roofwatch import KernelSpec, cases

@triton.autotune(
    [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256}, num_warps=8)], key=["count"]
)
@triton.jit
def _scale_kernel(x_ptr, y_ptr, count, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < count)
    tl.store(y_ptr + offsets, x * factor, mask=offsets < count)

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return _scaled(x, 2.0)

    @staticmethod
    def backward(context, gradient):
        return _scaled(gradient.contiguous(), 2.0)

def _scaled(x, factor):
    y = torch.empty_like(x)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    _scale_kernel[(processors,)](x, y, x.numel(), factor)
    return y

scale = KernelSpec(
    name="scale", inputs=lambda case, make: {"x": make.normal(case["n"])}, reference=lambda x: 2 * x,
    cases=cases(shapes=[{"n": 1000}, {"n": 1024}], dtypes=["float16"], directions=["fwd", "bwd"]),
    flop_count=lambda case: 1, memory_bytes=lambda case: 1,
)
scale.implementation("triton", directions=("fwd", "bwd"))(lambda x: Scale.apply(x))
"""

GRAPH = """
import torch
from roofwatch import KernelSpec, cases

graph = KernelSpec(
    name="graph", inputs=lambda case, make: {"x": make.normal(case["n"])}, reference=lambda x: 2 * x,
    cases=cases(shapes=[{"n": 1000}], dtypes=["float32"], directions=["fwd", "bwd"]),
    flop_count=lambda case: 1, memory_bytes=lambda case: 1,
)

@graph.implementation("torch", compile=True, directions=("fwd", "bwd"))
def doubled(x):
    return 2 * x.sin()
"""

LAUNCH_GRAPHS = """
import json, pathlib, sys
from torch._dynamo.utils import counters
from roofwatch.collector.jobs.case_call import compiled, prepare_call
from roofwatch.collector.suite import load_suite
from roofwatch.model.suite_source import SuiteSource

(spec,) = load_suite(SuiteSource(pathlib.Path(sys.argv[1])))
launch = compiled(spec.implementations["compile"])
for case in spec.cases:
    prepare_call(launch, spec, case, "cpu")()
print(json.dumps(counters))
"""


class Launches:
    """Notes for each function that is compiled or taken from the cache whether it was there."""

    def __init__(self) -> None:
        self.were_cached: list[bool] = []
        self.count = 0
        self._driver = target_driver(TARGET)
        self._driver.launcher_cls = lambda *_: self._note_launch
        self._driver.get_benchmarker = lambda: _call_once
        utils = self._driver.utils
        utils.load_binary = lambda *_: (object(), object(), 32, 0, 1024)

    def _note_launch(self, *_: object) -> None:
        self.count += 1

    def run(self, launch: Callable[[], Any]) -> None:
        def note(*, cache_hit: bool, **_: Any) -> None:
            self.were_cached.append(cache_hit)

        with as_on_gpu(TARGET), active_driver(self._driver), triton.knobs.compilation.scope():
            triton.knobs.compilation.listener = note
            launch()


def _call_once(call: Callable[[], object], **_: object) -> list[float]:
    call()
    return [1.0, 1.0, 1.0]


def launched_cases(source: SuiteSource) -> Launches:
    """Call every Triton implementation of a suite in this process, as the serial phase does."""
    launches = Launches()
    for spec in load_suite(source):
        implementation = spec.implementations["triton"]
        for case in spec.cases:
            inputs = make_inputs(spec, case, "cpu")

            def call(
                inputs: dict[str, Any] = inputs, launch: Callable[..., Any] = implementation.launch
            ) -> None:
                result = launch(**inputs)
                if result.requires_grad:
                    torch.autograd.grad(result, list(inputs.values()), torch.ones_like(result))

            launches.run(call)
    return launches


def compile_all(source: SuiteSource, cache_folder: Path, fork_server: ForkServer) -> None:
    settings = WorkerSettings(source=source, device="cpu", cache_folder=cache_folder)
    with WorkerPool(fork_server, settings) as workers:
        info = workers.start().model_copy(update={"device": "cuda"})
        cases = select(info, RunPlan(device="cuda"))
        fill_caches(workers, cases, TARGET, timeout_s=600)


def test_launches_find_all_that_was_compiled_ahead(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bench_scale.py"
    file.write_text(LAUNCHES)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "caches" / "triton"))
    compile_all(SuiteSource(file), tmp_path / "caches", fork_server)

    launches = launched_cases(SuiteSource(file))

    # two lengths, of which one is divisible by 16, in two configurations
    assert launches.were_cached == [True] * 4
    assert launches.count > 0


class NotingRun:
    """A run of one launch on a GPU that notes its steps."""

    def __init__(self, target: str | None) -> None:
        self.happened: list[str] = []
        self.compile_target = target
        self.is_on_cpu = target is None
        self.plan = RunPlan(device="cuda")
        self.spent = SpentTime()
        self.cases = {name: case_of(name) for name in ("torch", "compile", "triton", "measured")}
        self.cases["measured"].blocks = list(make_blocks([1.0] * self.plan.block_count))
        self.to_compile = self.to_interpret = self.to_check = ()
        server = SimpleNamespace(finish_start=lambda: None, load=lambda *_: None)
        self.workers = SimpleNamespace(fork_server=server)

    def describe_machine(self) -> None:
        self.happened.append("described")

    def compile(self) -> None:
        pass

    def check(self, *_: object, **__: object) -> None:
        self.happened.append("checked")


def case_of(name: str) -> CaseRun:
    language: Literal["torch", "triton"] = "torch"
    if name in ("triton", "measured"):
        language = "triton"
    implementation = ImplementationInfo(
        name=name,
        language=language,
        directions=("fwd",),
        is_compiled=name == "compile",
        unsupported_targets={},
    )
    return CaseRun(case=make_case(), implementation=implementation, rank_count=1)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("sm_90", ["described", "compile and triton for sm_90", "checked"]),
        (None, ["described", "checked"]),
    ],
)
def test_a_gpu_run_compiles_what_it_will_launch_before_the_first_check(
    target: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Any = NotingRun(target)

    def note(cases: Sequence[CaseRun], target: str, **_: object) -> None:
        names = [case.implementation.name for case in cases]
        run.happened.append(f"{' and '.join(names)} for {target}")

    monkeypatch.setattr("roofwatch.collector.runs.ahead.fill_caches", note)

    _prepare(run, Steps(lambda _: None))

    assert run.happened == expected


@pytest.mark.skipif(
    not hasattr(nvidia, "make_launcher"), reason="Triton 3.7 has one launcher for all signatures"
)
def test_launchers_in_c_are_built_ahead(tmp_path: Path) -> None:
    file = tmp_path / "bench_scale.py"
    file.write_text(LAUNCHES)
    library = build_stub("stub_libcuda.c", tmp_path / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    folder = str(library.parent)

    with ForkServer({"LD_LIBRARY_PATH": folder, "TRITON_LIBCUDA_PATH": folder}) as fork_server:
        compile_all(SuiteSource(file), tmp_path / "caches", fork_server)

    assert list((tmp_path / "caches").rglob("__triton_launcher*"))


@pytest.mark.slow
def test_torch_compile_finds_its_graphs(fork_server: ForkServer, tmp_path: Path) -> None:
    file = tmp_path / "bench_graph.py"
    file.write_text(GRAPH)
    caches = tmp_path / "caches"
    compile_all(SuiteSource(file), caches, fork_server)

    # in a new process, whose settings no other test has changed
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor")}
    command = [sys.executable, "-c", LAUNCH_GRAPHS, str(file)]
    launched = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    counters = json.loads(launched.stdout)
    assert counters["inductor"].get("fxgraph_cache_miss", 0) == 0
    assert counters["aot_autograd"].get("autograd_cache_miss", 0) == 0
    assert counters["aot_autograd"]["autograd_cache_hit"] == 2
