"""What our CUDA C++ computes: on an NVIDIA GPU, and on any machine with g++ as C++
(tests/kernels/host).
"""

from pathlib import Path

import pytest
import torch

from roofwatch import Case, CudaKernel, KernelSpec, UnsupportedError
from roofwatch.collector.compile.binary import nvidia_resources
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.rows import row_layout, vector_length
from roofwatch.kernels.normalisation.rms_norm import rms_norm_cuda, rms_norm_reference
from roofwatch.kernels.reduction.softmax import softmax_cuda
from roofwatch.kernels.registry import MODULES, single_kernels
from roofwatch.model.machine import Outcome
from roofwatch.spec import Language
from tests.kernels.builders import check, instructions, make_case
from tests.kernels.host import COMPILER, Host
from tests.kernels.test_suite import CallsOfOurs, as_leaves, first_of_each_kind, smallest, stand_ins

WRITTEN_IN_CUDA = [
    spec
    for spec in single_kernels()
    if any(found.language is Language.CUDA for found in spec.implementations.values())
]
LONG = 20_000
"""Columns: more than the registers hold, in vectors of 16 bytes."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    if COMPILER is None:
        pytest.skip("no g++ to compile CUDA C++ for the CPU with")
    return Host(tmp_path_factory.mktemp("host"))


@pytest.fixture(
    params=[pytest.param("cpu", id="host"), pytest.param("cuda", id="gpu", marks=pytest.mark.gpu)]
)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where tensors have to lie for CUDA C++ to run on them."""
    if request.param == "cpu":
        host = request.getfixturevalue("host")
        monkeypatch.setattr(
            CudaKernel,
            "launch",
            lambda kernel, *args, **kwargs: host.launch(kernel, *args, **kwargs),
        )
    elif not torch.cuda.is_available() or torch.version.cuda is None:
        pytest.skip("no NVIDIA GPU that torch can use")
    else:
        pytest.importorskip(
            "cuda.bindings.nvrtc", reason="CUDA C++ needs pip install 'roofwatch[cuda]'"
        )
    torch.manual_seed(0)
    where: str = request.param
    return where


def checked_cases(spec: KernelSpec) -> list[Case]:
    return [*spec.edges, *first_of_each_kind(stand_ins(spec))]


@pytest.mark.parametrize(
    ("spec", "case"),
    [
        pytest.param(spec, case, id=case.id)
        for spec in WRITTEN_IN_CUDA
        for case in checked_cases(spec)
    ],
)
def test_every_kind_of_case_and_all_odd_sizes_agree_with_the_float64_reference(
    spec: KernelSpec, case: Case, place: str
):
    accuracy = check(spec, case, device=place, implementation="cuda")
    assert accuracy.outcome is Outcome.OK, accuracy.message


@pytest.mark.parametrize("spec", WRITTEN_IN_CUDA, ids=lambda spec: spec.name)
def test_rows_longer_than_the_registers_hold_agree_several_to_a_block(
    spec: KernelSpec, place: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(f"{MODULES[spec.name]}.multiprocessor_count", lambda _: 1)
    case = make_case(spec.name, "bfloat16", "bwd", n_rows=5, n_cols=LONG)
    accuracy = check(spec, case, device=place, implementation="cuda")
    assert accuracy.outcome is Outcome.OK, accuracy.message


@pytest.mark.slow
@pytest.mark.parametrize("spec", WRITTEN_IN_CUDA, ids=lambda spec: spec.name)
def test_a_kernel_is_an_operator_that_torch_can_trace(spec: KernelSpec, place: str):
    with CallsOfOurs() as noted:
        check(spec, smallest(spec), device=place, implementation="cuda")
    assert set(noted.calls) == {
        f"roofwatch::{spec.name}_cuda",
        f"roofwatch::{spec.name}_cuda_backward",
    }
    for name, (operator, arguments, keywords) in noted.calls.items():
        torch.library.opcheck(
            operator, tuple(as_leaves(arguments, not name.endswith("_backward"))), keywords
        )


@pytest.mark.parametrize("n_cols", [1000, LONG])
def test_masked_logits_get_probability_zero(place: str, n_cols: int):
    x = torch.randn(3, n_cols, device=place)
    x[0, : n_cols // 2] = -torch.inf
    x[1, 1:] = -torch.inf
    x[2] = -torch.inf  # no logit left: undefined, as in torch
    torch.testing.assert_close(softmax_cuda(x), torch.softmax(x, dim=-1), equal_nan=True)


@pytest.mark.parametrize("n_cols", [1000, LONG])
def test_large_logits_do_not_overflow(place: str, n_cols: int):
    x = 1e4 * torch.randn(3, n_cols, device=place)
    torch.testing.assert_close(softmax_cuda(x), torch.softmax(x, dim=-1))


def test_a_weight_of_another_dtype_keeps_it_in_its_gradient(place: str):
    x = torch.randn(5, 64, device=place, dtype=torch.bfloat16)
    weight = torch.randn(64, device=place, requires_grad=True)
    out = rms_norm_cuda(x, weight)
    out.sum().backward()
    expected = rms_norm_reference(x.float(), weight.detach())
    torch.testing.assert_close(out.float(), expected, rtol=1e-2, atol=1e-2)
    assert weight.grad is not None
    assert weight.grad.dtype is torch.float32


def test_gradients_expanded_from_a_scalar_are_read_right(place: str):
    x = torch.randn(5, 64, device=place, requires_grad=True)
    weight = torch.randn(64, device=place, requires_grad=True)
    actual = torch.autograd.grad(rms_norm_cuda(x, weight).sum(), (x, weight))
    expected = torch.autograd.grad(rms_norm_reference(x, weight).sum(), (x, weight))
    torch.testing.assert_close(actual, expected)


def test_where_there_is_no_nvidia_gpu_the_kernels_say_what_they_need():
    with pytest.raises(
        UnsupportedError, match=r"softmax_kernel .* needs an NVIDIA GPU, got tensors on cpu"
    ):
        softmax_cuda(torch.zeros(2, 3))
    with pytest.raises(UnsupportedError, match=r"rms_norm_kernel .* needs an NVIDIA GPU"):
        rms_norm_cuda(torch.zeros(2, 3), torch.ones(3))


def test_operands_that_would_be_read_wrongly_are_refused():
    with pytest.raises(
        KernelError, match=r"x must be contiguous along its last dim, .* call x.contiguous\(\)"
    ):
        softmax_cuda(torch.zeros(4, 4).T)
    with pytest.raises(KernelError, match="the columns must be equal"):
        rms_norm_cuda(torch.zeros(2, 3), torch.ones(4))


@pytest.mark.parametrize(
    ("rows", "length"),
    [
        (torch.zeros(2, 64, dtype=torch.bfloat16), 8),
        (torch.zeros(2, 64), 4),
        (torch.zeros(2, 1002, dtype=torch.bfloat16), 2),
        (torch.zeros(2, 63), 1),
        (torch.zeros(2, 80)[:, 1:65], 1),  # starts off the boundary
        (torch.zeros(2, 67)[:, :64], 1),  # so does its second row
    ],
)
def test_a_vector_is_as_long_as_every_row_s_start_and_end_allow(rows: torch.Tensor, length: int):
    assert vector_length(rows) == length


@pytest.mark.parametrize("n_cols", [1, 31, 256, 4088, 4096, 16_384, 16_392, 128_256])
def test_a_block_covers_the_rows_that_it_says_fit(n_cols: int):
    layout = row_layout(torch.empty(1, n_cols, dtype=torch.bfloat16))
    assert layout.n_threads % 32 == 0
    assert 0 < layout.n_threads <= layout.most_threads
    assert layout.fits == (n_cols <= layout.length * layout.held * layout.n_threads)
    assert layout.fits == (n_cols <= 16_384)


KERNELS = [
    ("softmax", "softmax_kernel", (torch.bfloat16,)),
    ("softmax", "softmax_grad_kernel", (torch.bfloat16,)),
    ("rms_norm", "rms_norm_kernel", (torch.bfloat16, torch.bfloat16)),
    ("rms_norm", "rms_norm_grad_kernel", (torch.bfloat16, torch.bfloat16)),
]


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    ("package", "name", "dtypes"), KERNELS, ids=[name for _, name, _ in KERNELS]
)
def test_rows_are_read_and_written_in_sixteen_bytes_at_a_time_and_nothing_spills(
    package: str, name: str, dtypes: tuple[torch.dtype, ...], target: str, tmp_path: Path
):
    source = Path(__file__).parents[2].joinpath(*MODULES[package].split(".")).with_suffix(".cu")
    for held, most_threads in ((1, 512 if "rms_norm_grad" in name else 1024), (4, 512)):
        cubin = CudaKernel(source, name, template=(*dtypes, 8, held, most_threads)).compile(target)
        assert nvidia_resources(cubin.image)["local_bytes"] == 0
        found = instructions(cubin.image, tmp_path)
        loads = [line for line in found if line.startswith("LDG")]
        stores = [line for line in found if line.startswith("STG")]
        # 1/rms alone is one number
        assert [".128" in load for load in loads].count(False) == (name == "rms_norm_grad_kernel")
        assert [".128" in store for store in stores].count(False) == (name == "rms_norm_kernel")
        assert len(loads) > held
        assert len(stores) > held
