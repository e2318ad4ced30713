"""What `submit` does with memory of a GPU, on tensors without data: the judge and the candidate's
process place, read and return tensors that are on the GPU.
"""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from roofwatch.collector.jobs.candidate_main import _Server
from roofwatch.collector.workers.candidate import CandidateProcess, _place, _storage
from roofwatch.collector.workers.candidate_protocol import Output

ARENA_BYTES = 2**16


def judge_with(arena: torch.Tensor) -> CandidateProcess:
    """The judge's side, without the process."""
    judge = object.__new__(CandidateProcess)
    judge._arena = arena
    judge._returned = []
    return judge


def server_with(arena: torch.Tensor) -> _Server:
    """The side of the candidate's process."""
    server = object.__new__(_Server)
    server._torch = torch
    # tensors without data are of a subclass, which the candidate may not return
    if type(arena) is not torch.Tensor:
        server.__dict__["_torch"] = SimpleNamespace(Tensor=FakeTensor, bfloat16=torch.bfloat16)
    server._arena = arena
    server._device = "cpu"  # no GPU is waited for
    return server


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_the_bytes_of_a_tensor_are_on_its_device(device: str) -> None:
    tensor = torch.empty(4, 6, device=device).t()[1:3]

    stored = _storage(tensor)

    assert (stored.device.type, stored.dtype, stored.shape) == (device, torch.uint8, (96,))


@pytest.mark.parametrize(
    "device",
    [
        "meta",
        pytest.param(
            "cuda",
            marks=pytest.mark.skipif(
                torch.version.cuda is None, reason="this build of torch has no operators for CUDA"
            ),
        ),
    ],
)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "with gaps"])
def test_inputs_and_outputs_of_a_candidate_stay_on_the_gpu(layout: str, device: str) -> None:
    # torch has no data of these devices here
    mode = FakeTensorMode() if device == "cuda" else contextlib.nullcontext()
    with mode, torch.no_grad():
        arena = torch.empty(ARENA_BYTES, dtype=torch.uint8, device=device)
        x = torch.empty(32, 48, device=device, dtype=torch.bfloat16)
        if layout == "transposed":
            x = x.t()
        elif layout == "with gaps":
            x = x[:, ::2]
        judge = judge_with(arena)
        server = server_with(arena)
        span = _place(x, start=64)
        judge._bytes(span).copy_(_storage(x))

        view = server._view(**span)
        returned: list[dict[str, Any]] = server._copy({"out": view.clone()}, 2**15)
        copies = judge._copy([Output.model_validate(output) for output in returned], 2**15)

    assert (view.shape, view.stride(), view.dtype) == (x.shape, x.stride(), x.dtype)
    assert (copies["out"].shape, copies["out"].dtype) == (x.shape, x.dtype)
    assert {tensor.device.type for tensor in (view, copies["out"])} == {device}
