import pytest
import torch

from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.reduction import linear_cross_entropy as linear_cross_entropy_module
from roofwatch.kernels.reduction.cross_entropy import cross_entropy
from roofwatch.kernels.reduction.linear_cross_entropy import linear_cross_entropy
from roofwatch.kernels.reduction.softmax import softmax

LENGTHS = [1000, MAX_COLS_IN_REGISTERS + 100]


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_masked_logits_get_probability_zero(device: str, n_cols: int):
    x = torch.randn(3, n_cols, device=device)
    x[0, : n_cols // 2] = -torch.inf  # whole tiles at the start
    x[1, 1:] = -torch.inf
    x[2] = -torch.inf  # no logit left: undefined, as in torch
    torch.testing.assert_close(softmax(x), torch.softmax(x, dim=-1), equal_nan=True)


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_large_logits_do_not_overflow(device: str, n_cols: int):
    x = 1e4 * torch.randn(3, n_cols, device=device)
    torch.testing.assert_close(softmax(x), torch.softmax(x, dim=-1))


VOCABULARIES = [1000, 5001]


def make_logits_and_labels(
    n_rows: int, n_cols: int, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n_rows, n_cols, device=device), torch.randint(
        n_cols, (n_rows,), device=device
    )


@pytest.mark.parametrize("n_cols", VOCABULARIES)
def test_masked_and_large_logits_agree_with_torch(device: str, n_cols: int):
    logits, labels = make_logits_and_labels(3, n_cols, device)
    labels[:] = n_cols - 1
    logits[0, : n_cols - 1] = -torch.inf  # whole tiles, and the label alone is left
    logits[1, ::2] = -torch.inf
    logits[1, -1] = 0.0
    logits[2] *= 1e4
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(cross_entropy(logits, labels), expected)


def test_an_ignored_row_is_not_read_and_gives_zero_loss_and_gradient(device: str):
    logits, labels = make_logits_and_labels(4, 1000, device)
    labels[1] = -100
    logits[1] = torch.nan
    logits.requires_grad_()
    loss = cross_entropy(logits, labels)
    loss.sum().backward()
    assert loss[1] == 0
    assert logits.grad is not None
    assert torch.equal(logits.grad[1], torch.zeros_like(logits[1]))
    assert loss.isfinite().all()
    assert logits.grad.isfinite().all()


def test_another_label_can_be_the_ignored_one(device: str):
    logits, _ = make_logits_and_labels(3, 63, device)
    labels = torch.tensor([0, 5, 0], device=device)
    expected = torch.nn.functional.cross_entropy(logits, labels, ignore_index=0, reduction="none")
    torch.testing.assert_close(cross_entropy(logits, labels, ignore_index=0), expected)


@pytest.mark.parametrize("label", [-1, 63, 2**40])
def test_a_label_that_names_no_column_gives_nan(device: str, label: int):
    logits, labels = make_logits_and_labels(2, 63, device)
    labels[1] = label
    logits.requires_grad_()
    loss = cross_entropy(logits, labels)
    loss.sum().backward()
    assert loss.isnan().tolist() == [False, True]
    assert logits.grad is not None
    assert logits.grad.isnan().all(dim=1).tolist() == [False, True]


def test_the_loss_of_half_precision_logits_is_float32(device: str):
    logits, labels = make_logits_and_labels(2, 63, device)
    assert cross_entropy(logits.bfloat16(), labels).dtype is torch.float32


def test_labels_of_another_dtype_layout_or_number_are_refused_with_a_way_out():
    logits = torch.randn(2, 63)
    with pytest.raises(KernelError, match=r"call labels\.contiguous\(\)"):
        cross_entropy(logits, torch.zeros(4, dtype=torch.int64)[::2])
    with pytest.raises(KernelError, match="cross_entropy: the rows must be equal"):
        cross_entropy(logits, torch.tensor([1, 2, 3]))
    with pytest.raises(KernelError, match="at least one"):
        cross_entropy(torch.empty(2, 0), torch.tensor([1, 2]))


def test_losses_and_gradients_of_several_chunks_agree_with_torch(
    device: str, monkeypatch: pytest.MonkeyPatch
):
    n_rows, hidden, vocab = 9, 16, 100
    monkeypatch.setattr(linear_cross_entropy_module, "_LOGITS_BYTES", 4 * vocab * 4)
    x = torch.randn(n_rows, hidden, device=device, requires_grad=True)
    weight = torch.randn(vocab, hidden, device=device, requires_grad=True)
    labels = torch.randint(vocab, (n_rows,), device=device)
    labels[5] = -100
    expected = torch.nn.functional.cross_entropy(x @ weight.t(), labels, reduction="none")
    expected_gradients = torch.autograd.grad(expected.sum(), (x, weight))

    loss = linear_cross_entropy(x, weight, labels)

    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss.sum(), (x, weight))
    torch.testing.assert_close(gradients, expected_gradients)
