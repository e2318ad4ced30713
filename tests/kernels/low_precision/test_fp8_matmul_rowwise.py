import pytest
import torch

from roofwatch import UnsupportedError
from roofwatch.kernels import KernelError
from roofwatch.kernels.low_precision.quantise import quantise_fp8
from roofwatch.kernels.low_precision.scaled_matmul import fp8_matmul_rowwise, fp8_matmul_rowwise_spec


def test_every_number_of_e4m3_survives_a_product_with_the_identity(device: str):
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    numbers = numbers[numbers.float().isfinite()].reshape(2, 127).to(device)
    identity = torch.eye(127).to(torch.float8_e4m3fn).to(device)
    ones = torch.ones(127, 1, device=device)
    out = fp8_matmul_rowwise(numbers, ones[:2], identity, ones)
    assert torch.equal(out.float(), numbers.float())


def test_quantised_operands_multiply_to_nearly_the_product(device: str):
    x, weight = torch.randn(20, 256, device=device), torch.randn(30, 256, device=device)
    out = fp8_matmul_rowwise(*quantise_fp8(x), *quantise_fp8(weight))
    error = (out.float() - x @ weight.t()).square().mean().sqrt() / (x @ weight.t()).square().mean().sqrt()
    assert error < 0.06


def test_other_dtypes_and_scales_are_refused():
    x = torch.ones(2, 16).to(torch.float8_e4m3fn)
    scale = torch.ones(2, 1)
    with pytest.raises(KernelError, match=r"x is torch.bfloat16.*x\.to\(torch.float8_e4m3fn\)"):
        fp8_matmul_rowwise(x.bfloat16(), scale, x, scale)
    with pytest.raises(KernelError, match=r"weight_scale must be contiguous float32 of shape \(2, 1\)"):
        fp8_matmul_rowwise(x, scale, x, torch.ones(1))


def test_cublas_says_what_it_needs_where_it_is_not():
    x, scale = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.ones(16, 1)
    with pytest.raises(UnsupportedError, match=r"needs a GPU of compute capability 8\.9"):
        fp8_matmul_rowwise_spec.implementations["scaled_mm"].launch(x, scale, x, scale)
