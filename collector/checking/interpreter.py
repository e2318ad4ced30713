"""Triton's interpreter, made to round as a GPU does.

Its own conversion to bfloat16 and float8 cuts the mantissa off, or rounds it up without the carry into the exponent:
twice the error of a device, of which an accuracy check would accuse the kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.runtime import interpreter

_TORCH_DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
}
_BIT_PATTERNS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}

_convert_in_triton = interpreter._convert_float


def round_as_a_gpu_does() -> None:
    """Let torch do the conversions that the interpreter does, from now on in this process."""
    interpreter._convert_float = _convert


def _convert(data: Any, source: Any, target: Any, rounding_mode: Any) -> Any:
    """The bit patterns of `data`, an array of Triton's dtype `source`, in `target`: nearest, ties to even; to float8
    without overflow, as the conversion of NVIDIA's GPUs (PTX ISA, cvt.rn.satfinite) does.
    """
    given, wanted = _TORCH_DTYPES.get(source.name), _TORCH_DTYPES.get(target.name)
    if given is None or wanted is None or rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ:
        return _convert_in_triton(data, source, target, rounding_mode)
    values = torch.from_numpy(data.reshape(-1).copy()).view(given)
    if wanted.itemsize == 1:
        largest = torch.finfo(wanted).max
        values = values.to(torch.float32).clamp(-largest, largest)
    return values.to(wanted).view(_BIT_PATTERNS[wanted.itemsize]).numpy().reshape(data.shape)
