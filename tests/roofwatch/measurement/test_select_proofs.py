"""Which cases are analysed without a GPU."""

from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.measurement.check import Depth, select_proofs
from roofwatch.model.worker_protocol import SuiteInfo
from tests.builders import make_case, make_implementation_info, make_kernel_info

SMALL = "double/n_rows=4/float32/fwd"
LARGE = "double/n_rows=600000/float32/fwd"
HALF = "double/n_rows=4/bfloat16/fwd"


def proved(depth: Depth) -> list[str]:
    cases = (
        make_case(SMALL, memory_bytes=1e3),
        make_case(LARGE, memory_bytes=1e10),
        make_case(HALF, memory_bytes=5e2),
    )
    kernel = make_kernel_info(
        "double",
        cases=cases,
        implementations=(make_implementation_info("triton", language="triton"),),
    )
    info = SuiteInfo(device="cpu", kernels=(kernel,))
    return [subject.case_id for subject in select_proofs(info, RunPlan(device="cpu"), depth)]


def test_the_largest_case_of_each_dtype_is_analysed_whatever_its_place() -> None:
    assert proved(Depth.QUICK) == [LARGE, HALF]


def test_every_case_is_analysed_at_full_depth() -> None:
    assert proved(Depth.FULL) == [SMALL, LARGE, HALF]
