"""Conversions in the interpreter, which stands in for a GPU's."""

import json
import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

VALUES = torch.cat(
    [
        torch.randn(1000, generator=torch.Generator().manual_seed(0)),
        # a tie, a carry into the exponent, the largest numbers, what is too large for float8
        torch.tensor(
            [
                1.00390625,
                1.99999988,
                3.3e38,
                -448.0,
                5e4,
                6e4,
                1e-40,
                0.0,
                -0.0,
                torch.inf,
                torch.nan,
            ]
        ),
    ]
)


@triton.jit
def _convert_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)  # [BLOCK]
    tl.store(y_ptr + offs, x.to(y_ptr.dtype.element_ty), mask=offs < n)  # [BLOCK]


def converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    _convert_kernel[(1,)](x, y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return y


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_are_rounded_to_the_nearest_as_torch_does(dtype: torch.dtype, device: str):
    x = VALUES.to(device)
    assert torch.equal(converted(x, dtype)[:-1], x.to(dtype)[:-1])
    assert converted(x, dtype)[-1].isnan()
    assert torch.equal(converted(x.to(dtype), torch.float32)[:-1], x.to(dtype).float()[:-1])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_takes_its_largest_number_in_place_of_an_overflow(dtype: torch.dtype, device: str):
    if device == "cuda" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("no conversion to float8 before compute capability 8.9")
    x = VALUES.to(device)
    largest = torch.finfo(dtype).max
    expected = x.clamp(-largest, largest).to(dtype)
    assert torch.equal(converted(x, dtype)[:-1].float(), expected[:-1].float())
    assert converted(x, dtype)[-1].float().isnan()


def test_bfloat16_is_computed_as_numbers(device: str) -> None:
    @triton.jit
    def kernel(x_ptr, y_ptr, out_ptr, eps, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
        arithmetic = tl.where(x > y, 2 * x + y, tl.maximum(x - y, 0.5)) * eps.to(x.dtype)
        reductions = x - tl.max(x, axis=0) + tl.sum(y, axis=0) + tl.cumsum(y, axis=0)
        tl.store(out_ptr + offs, arithmetic)
        tl.store(out_ptr + BLOCK + offs, reductions)
        tl.store(out_ptr + 2 * BLOCK + offs, tl.fma(x, y, x) / (tl.abs(y) + 1))

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.full((3, 32), torch.nan, dtype=x.dtype, device=device)
        kernel[(1,)](x, y, out, 0.25, BLOCK=32)
        return out.double()

    torch.manual_seed(0)
    x, y = torch.randn(2, 32, device=device).bfloat16()

    torch.testing.assert_close(run(x, y), run(x.double(), y.double()), rtol=0.03, atol=0.06)


def test_bfloat16_matrices_are_multiplied_as_numbers(device: str) -> None:
    @triton.jit
    def kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
        row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
        x = tl.load(x_ptr + row * BLOCK + column)  # [BLOCK, BLOCK]
        y = tl.load(y_ptr + row * BLOCK + column)  # [BLOCK, BLOCK]
        tl.store(out_ptr + row * BLOCK + column, tl.dot(x, y))  # [BLOCK, BLOCK]

    torch.manual_seed(0)
    x, y = torch.randn(2, 16, 16, device=device).bfloat16()
    out = torch.empty(16, 16, device=device)
    kernel[(1,)](x, y, out, BLOCK=16)

    torch.testing.assert_close(out, x.float() @ y.float())


def test_a_loop_variable_is_a_tensor_and_one_of_a_static_range_a_number(device: str) -> None:
    @triton.jit
    def kernel(out_ptr, n, BLOCK: tl.constexpr):
        for block in range(n):
            start = (block * BLOCK).to(tl.int64)
            for part in tl.range(0, BLOCK):
                value = part.to(tl.float32)
                for step in tl.static_range(2):
                    value += 10 * step if step > 0 else 0
                tl.store(out_ptr + start + part, value)

    out = torch.empty(6, device=device)
    kernel[(1,)](out, 3, BLOCK=2)

    assert out.tolist() == [10.0, 11.0] * 3


@triton.jit
def _logic_kernel(x_ptr, y_ptr, m, n, IS_WIDE: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    inside = rows < m and cols < n
    x = tl.load(x_ptr + rows * BLOCK + cols, mask=inside and not IS_WIDE, other=-1.0)
    outside = not (rows < m) or cols >= n
    # a condition on scalars stays one, and a constant decides what is evaluated
    if m > 0 and not (n > BLOCK):
        x = tl.where(outside, x, 2 * x)
    tl.store(y_ptr + rows * BLOCK + cols, x)


def test_logic_of_blocks_is_elementwise(device: str) -> None:
    """Python calls a block true, so a mask of rows and columns was one of columns alone."""
    x = torch.ones(4, 4, device=device)
    y = torch.empty_like(x)

    _logic_kernel[(1,)](x, y, 2, 3, IS_WIDE=False, BLOCK=4)

    expected = torch.full_like(x, -1)
    expected[:2, :3] = 2
    assert torch.equal(y, expected)
    _logic_kernel[(1,)](x, y, 2, 3, IS_WIDE=True, BLOCK=4)
    expected[:2, :3] = -2
    assert torch.equal(y, expected)


DEFECTS = """
import json, os, sys
import triton.runtime.interpreter as interpreter
import roofwatch.collector.accuracy.interpreter as corrections
from roofwatch.collector.accuracy.corrected_interpreter import interpreter_defect

for change in json.loads(sys.argv[1]):
    # corrected once in a process
    if not os.fork():
        exec(change)
        print(interpreter_defect(), flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_release_of_triton_that_the_corrections_do_not_fit_is_named() -> None:
    """Without the corrections, the interpreter calls wrong kernels right."""
    defects = {
        # Triton 3.9 has one, by which the corrections once told that they were made
        "interpreter.InterpreterBuilder.get_bf16 = lambda builder, value: None": "None",
        "del interpreter.ReduceOps": "AttributeError",
        "interpreter.InterpreterBuilder.create_dot = None": "TypeError",
        "corrections._in_float32 = lambda operation: operation": "wrong: bfloat16 arithmetic",
        "corrections.guard_memory = lambda: None": (
            "wrong: a load out of bounds, a race, a store out of bounds"
        ),
    }
    done = subprocess.run(
        [sys.executable, "-c", DEFECTS, json.dumps(list(defects))],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )

    lines = done.stdout.splitlines()
    assert len(lines) == len(defects), done.stderr
    for line, defect in zip(lines, defects.values(), strict=True):
        assert defect in line
