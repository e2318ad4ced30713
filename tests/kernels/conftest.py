"""Where the Triton kernels run in these tests.

A test that asks for `device` launches kernels. On a machine with a GPU it runs there; with
TRITON_INTERPRET=1 set before Python starts it runs in Triton's interpreter, and nothing but such
tests is selected. Test_interpreter.py runs them so, in a process of their own: Triton decides when
it is imported whether it compiles or interprets.
"""

import os
from collections.abc import Iterator

import pytest
import torch
import triton

from roofwatch.collector.accuracy.baseline import poisoned_buffers

IS_INTERPRETED = triton.knobs.runtime.interpret
if IS_INTERPRETED:
    from roofwatch.collector.accuracy.corrected_interpreter import correct_interpreter

    correct_interpreter()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        where = (
            pytest.param("cpu", id="interpreter")
            if IS_INTERPRETED
            else pytest.param("cuda", id="gpu", marks=pytest.mark.gpu)
        )
        metafunc.parametrize("device", [where], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if IS_INTERPRETED:
        launching = [item for item in items if "device" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in launching])
        items[:] = launching


@pytest.fixture
def compilers_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty caches of this test session alone: what several launches have in common is compiled
    once.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
    monkeypatch.setenv("ROOFWATCH_CACHE_DIR", str(folder))


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where to put the operands. Fresh buffers are full of NaN there, so that an element that is
    never stored shows.
    """
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    torch.manual_seed(0)
    with poisoned_buffers():
        yield request.param
    if request.param == "cuda":
        _require_a_working_device()
        # a check in float64 keeps up to 36 GB, and other processes test on the same GPU
        torch.cuda.empty_cache()


def _require_a_working_device() -> None:
    """Report an asynchronous error in its own test. A context with such an error is lost, so the
    process ends: xdist starts another for the remaining tests.
    """
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            pytest.exit(f"the GPU context is lost: {error}", returncode=1)
        os.write(2, f"the GPU context is lost: {error}\n".encode())
        os._exit(1)
