"""A package that is imported on a GPU only, and launches, tunes and keeps kernels in its own way."""

import pytest

from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.check import check_suite
from roofwatch.model.check_report import CheckedSuite
from roofwatch.model.machine import Outcome
from roofwatch.model.proofs import Proof
from roofwatch.model.suite_source import SuiteSource

pytestmark = pytest.mark.usefixtures("forked_servers")

PACKAGE = {
    "__init__.py": "from demanding import device, kernels\n",
    "device/__init__.py": """
from demanding.device import detector
import torch
if not torch.cuda.is_available():
    raise RuntimeError("no device was found")
""",
    "device/detector.py": "",
    "without_init/helper/scalars.py": """
import triton

@triton.jit
def plus(x, y):
    return x + y
""",
    "kernels.py": """
import torch
import triton
import triton.language as tl
from demanding.without_init.helper.scalars import plus

class Tuner(triton.runtime.Autotuner):
    def run(self, *args, **kwargs):
        triton.runtime.driver.active.get_benchmarker()
        return super().run(*args, **kwargs)

class Kept(triton.KernelInterface):
    def __init__(self, fn):
        self.fn, self.kernels = fn, {}
        while not isinstance(fn, triton.runtime.JITFunction):
            fn = fn.fn
        self.params, self.key = fn.params, fn.cache_key

    def run(self, *args, grid, **kwargs):
        key = (self.key, *(getattr(arg, "dtype", arg) for arg in args))
        if key not in self.kernels:
            self.kernels[key] = self.fn.run(*args, grid=grid, **kwargs), self.fn.best_config
            return
        kernel, config = self.kernels[key]
        meta = {**kwargs, **config.kwargs}
        constants = [meta[p.name] for p in self.params if p.is_constexpr]
        kernel[grid(meta)](*args, *constants)

class Buffer:
    "Says its address and dtype, as a view with a negative stride would."
    def __init__(self, base):
        self.base_tensor, self.dtype = base, base.dtype

    def data_ptr(self):
        return self.base_tensor.data_ptr()

def tune(fn):
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
    return Kept(Tuner(fn, fn.arg_names, configs, ["n"], None, None))

@tune
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, plus(x, x), mask=offsets < n)

def double(x):
    y = torch.empty_like(x)
    for _ in range(2):  # the second launch is that of a kept kernel
        y.fill_(0)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, Buffer(y), x.numel())
    return y

@triton.jit
def persistent_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(y_ptr + offsets, x + x, mask=offsets < n)

def double_in_programs_that_fit(x):
    y = torch.empty_like(x)
    properties = triton.runtime.driver.active.utils.get_device_properties(0)
    compiled = persistent_kernel.warmup(x, y, x.numel(), BLOCK=64, grid=(1,))
    compiled._init_handles()
    fitting = properties["max_num_regs"] // (compiled.n_regs * properties["warpSize"] * 4)
    fitting = min(fitting, properties["max_shared_mem"] // compiled.metadata.shared)
    compiled[(fitting, 1, 1)](x, y, x.numel(), 64)
    return y
""",
}
SUITE = """
from roofwatch import KernelSpec, cases

def double(x):
    import demanding.kernels
    return demanding.kernels.double(x)

twice = KernelSpec(
    name="twice",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: 2 * x,
    cases=[
        *cases(shapes=[{"n": 300}], dtypes=["float32"], directions=["fwd"], tags=["quick"]),
        *cases(shapes=[{"n": 2**32}], dtypes=["float32"], directions=["fwd"], tags=["large"]),
    ],
    flop_count=lambda case: 0,
    memory_bytes=lambda case: 0,
    interpreted_shape={"n": 300},
)
twice.implementation("triton")(double)

def double_in_programs_that_fit(x):
    import demanding.kernels
    return demanding.kernels.double_in_programs_that_fit(x)

persistent = KernelSpec(
    name="persistent",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: 2 * x,
    cases=cases(shapes=[{"n": 300}], dtypes=["float32"], directions=["fwd"], tags=["quick"]),
    flop_count=lambda case: 0,
    memory_bytes=lambda case: 0,
    interpreted_shape={"n": 300},
)
persistent.implementation("triton")(double_in_programs_that_fit)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> CheckedSuite:
    folder = tmp_path_factory.mktemp("demanding_suite")
    for name, code in PACKAGE.items():
        file = folder / "demanding" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    suite = folder / "bench_demanding.py"
    suite.write_text(f"import sys\nsys.path.insert(0, {str(folder)!r})\n{SUITE}")
    plan = RunPlan(device="cpu", implementations=("triton",), targets=("sm_90",))
    return check_suite(SuiteSource(suite), plan, fork_server=fork_server)


@pytest.mark.slow
def test_it_runs_in_the_interpreter(checked: CheckedSuite) -> None:
    report = checked.reports[0]
    assert report.outcome is Outcome.OK, report.message
    assert report.unknown_pointer_count == 0


PERSISTENT = "persistent/n=300/float32/fwd"


@pytest.mark.slow
def test_a_launcher_that_asks_how_many_programs_fit_is_checked(checked: CheckedSuite) -> None:
    reports = [report for report in checked.reports if report.case_id == PERSISTENT]

    assert reports[0].outcome is Outcome.OK, reports[0].message


@pytest.mark.slow
def test_the_launch_of_such_a_launcher_is_counted_once(checked: CheckedSuite) -> None:
    (cost,) = [cost for cost in checked.operator_costs if cost.case_id == PERSISTENT]

    assert cost.launch_count == 1


@pytest.mark.slow
def test_both_launches_of_a_tuned_kernel_are_counted(checked: CheckedSuite) -> None:
    costs = {cost.case_id: cost for cost in checked.operator_costs}

    assert costs["twice/n=300/float32/fwd"].launch_count == 2


@pytest.mark.slow
def test_bytes_behind_its_own_views_are_counted(checked: CheckedSuite) -> None:
    costs = {cost.case_id: cost for cost in checked.operator_costs}

    # two launches that read x and write y
    assert costs["twice/n=300/float32/fwd"].kernel_bytes == 2 * 2 * 300 * 4


@pytest.mark.slow
def test_its_offsets_are_analysed(checked: CheckedSuite) -> None:
    proofs = {proof.case_id: proof for proof in checked.overflow_proofs}
    assert proofs["twice/n=300/float32/fwd"].proof is Proof.FITS
    large = proofs[f"twice/n={2**32}/float32/fwd"]
    assert large.proof is Proof.UNSAFE, large.message
    assert {access.pointer for access in large.unproven} == {"x_ptr", "y_ptr"}
