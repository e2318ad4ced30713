"""Launchers through torch.compile, as the collector has them compiled,
and more calls of one case.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch._dynamo
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config

from roofwatch.collector.jobs.case_call import another_call, compiled
from roofwatch.spec import Direction, Implementation, Language, UnsupportedError


def test_each_of_many_shapes_of_one_kernel_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_shapes: list[tuple[int, ...]] = []

    def note(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        compiled_shapes.append(tuple(inputs[0].shape))
        return graph.forward  # compiling takes seconds

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=note))
    torch._dynamo.reset()
    add_one = Implementation(
        "compile", Language.TORCH, lambda x: x + 1, frozenset({Direction.FWD}), is_compiled=True
    )
    shapes = [(count,) for count in range(2, 14)]
    with (  # settings of the process, restored afterwards
        dynamo_config.patch(
            recompile_limit=8, accumulated_recompile_limit=256, suppress_errors=True
        ),
        dynamo_config.patch(fail_on_recompile_limit_hit=False),
        functorch_config.patch(donated_buffer=True),
        inductor_config.patch(compile_threads=1),
    ):
        launch = compiled(add_one)
        for shape in shapes * 2:
            assert torch.equal(launch(torch.zeros(shape)), torch.ones(shape))

    assert compiled_shapes == shapes


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        (MemoryError(), UnsupportedError, "--cache hot or cold"),
        (torch.OutOfMemoryError("CUDA out of memory"), UnsupportedError, "--cache hot or cold"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            UnsupportedError,
            "--cache hot or cold",
        ),
        (RuntimeError("an illegal memory access"), RuntimeError, "an illegal memory access"),
    ],
    ids=["host", "torch", "allocator", "other"],
)
def test_too_little_memory_for_copies_is_unsupported(
    raised: Exception, expected: type[Exception], said: str
) -> None:
    def make() -> Callable[[], object]:
        raise raised

    with pytest.raises(expected, match=said):
        another_call(make)
    assert another_call(lambda: list)() == []
