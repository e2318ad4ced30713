import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.normalisation.adaln_modulate import adaln_modulate, adaln_modulate_reference


def test_the_chunks_of_one_conditioning_matrix_are_read_where_they_lie(device: str):
    x = torch.randn(2, 5, 63, device=device)
    conditioning = torch.randn(2, 6 * 63, device=device, requires_grad=True)
    shift, scale = conditioning.chunk(6, dim=-1)[:2]
    upstream = torch.randn(2, 5, 63, device=device)
    (actual,) = torch.autograd.grad(adaln_modulate(x, scale, shift), conditioning, upstream, retain_graph=True)
    (expected,) = torch.autograd.grad(adaln_modulate_reference(x, scale, shift), conditioning, upstream)
    torch.testing.assert_close(actual, expected)


def test_the_images_tokens_of_a_longer_sequence_are_read_where_they_lie(device: str):
    sequence = torch.randn(2, 9, 70, device=device)
    tokens = sequence[:, 4:, :63].requires_grad_()
    scale, shift = torch.randn(2, 2, 63, device=device)
    upstream = torch.randn(2, 5, 63, device=device)
    out = adaln_modulate(tokens, scale, shift)
    expected = adaln_modulate_reference(tokens, scale, shift)
    torch.testing.assert_close(out, expected)
    (actual,) = torch.autograd.grad(out, tokens, upstream)
    torch.testing.assert_close(actual, torch.autograd.grad(expected, tokens, upstream)[0])


def test_each_image_is_modulated_by_its_own_conditioning(device: str):
    x = torch.randn(1, 5, 63, device=device).expand(2, 5, 63)
    scale = torch.zeros(2, 63, device=device)
    shift = torch.stack([torch.zeros(63, device=device), torch.ones(63, device=device)])
    first, second = adaln_modulate(x, scale, shift)
    torch.testing.assert_close(second, first + 1)


def test_a_scale_per_token_is_refused():
    with pytest.raises(KernelError, match=r"adaln_modulate: images and columns must be equal, .*scale \(2, 5, 63\)"):
        adaln_modulate(torch.randn(2, 5, 63), torch.randn(2, 5, 63), torch.randn(2, 63))


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3), (2, 5, 0)])
def test_an_empty_batch_gives_an_empty_result_and_conditionings_gradients_of_zero(shape: tuple[int, int, int]):
    B, _, n_cols = shape
    x = torch.empty(shape, requires_grad=True)
    scale, shift = (torch.ones(B, n_cols, requires_grad=True) for _ in range(2))
    out = adaln_modulate(x, scale, shift)
    out.sum().backward()
    assert out.shape == shape
    assert x.grad is not None
    assert x.grad.shape == shape
    assert scale.grad is not None
    assert shift.grad is not None
    assert torch.equal(scale.grad, torch.zeros(B, n_cols))
    assert torch.equal(shift.grad, torch.zeros(B, n_cols))
