"""Bytes of torch's operators in a call."""

import torch

from roofwatch.collector.profiling.operator_bytes import OperatorBytes


def test_operators_count_the_bytes_that_they_move() -> None:
    x = torch.ones(10, 10)
    with OperatorBytes() as counted:
        (x.t() * 2).sum()

    # the view moves nothing; a sum reads 100 elements and writes one
    assert counted.bytes_by_name == {"mul": 800, "sum": 404}
    assert counted.elementwise_names == {"mul"}


def test_backward_passes_count() -> None:
    x = torch.ones(10, 10, requires_grad=True)
    y = x.sigmoid()
    with OperatorBytes() as counted:
        y.sum().backward()  # type: ignore[no-untyped-call]  # torch is not typed

    assert "sigmoid_backward" in counted.bytes_by_name
