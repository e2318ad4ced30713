import torch

from roofwatch.kernels.normalisation.rms_norm import rms_norm


def test_the_weights_gradient_is_the_same_in_every_run(device: str):
    x = torch.randn(50, 63, device=device)
    weight = torch.randn(63, device=device, requires_grad=True)
    upstream = torch.randn(50, 63, device=device)
    first, second = (torch.autograd.grad(rms_norm(x, weight), weight, upstream)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_weight_of_another_dtype_keeps_it_in_its_gradient(device: str):
    x = torch.randn(5, 63, device=device, dtype=torch.bfloat16)
    weight = torch.randn(63, device=device, requires_grad=True)
    out = rms_norm(x, weight)
    out.sum().backward()
    assert out.dtype is torch.bfloat16
    assert weight.grad is not None
    assert weight.grad.dtype is torch.float32


def test_a_row_of_zeros_stays_finite(device: str):
    x = torch.zeros(2, 63, device=device, requires_grad=True)
    weight = torch.ones(63, device=device)
    out = rms_norm(x, weight)
    out.sum().backward()
    assert torch.equal(out, torch.zeros_like(out))
    assert x.grad is not None
    assert x.grad.isfinite().all()
