"""Triton's interpreter, made to round as a GPU does, and to look for its own functions once.

Its own conversion to bfloat16 and float8 cuts the mantissa off, or rounds it up without the carry into the exponent:
twice the error of a device, of which an accuracy check would accuse the kernel.

Each launch, and each call of a function within a kernel, by every program of the grid, has it look through all members
of the language for those that are to be interpreted: in attention a seventh of the time of a check.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import triton.language as tl
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


_patch_in_triton = interpreter._patch_builtin
_LANGUAGE = (tl, tl.core, tl.tensor, tl.math, tl.core.tensor_descriptor_base)
_to_interpret: dict[Any, list[str]] = {}


def round_as_a_gpu_does() -> None:
    """Let torch do the conversions that the interpreter does, from now on in this process, before it runs anything."""
    interpreter._convert_float = _convert
    for part in _LANGUAGE if not _to_interpret else ():
        _to_interpret[part] = [name for name, member in inspect.getmembers(part) if tl.core.is_builtin(member)]
    interpreter._patch_builtin = _patch_known


def _patch_known(part: Any, *how: Any) -> None:
    """Have the members of a part of the language interpreted that are not yet."""
    if part not in _to_interpret:
        _patch_in_triton(part, *how)
        return
    for name in _to_interpret[part]:
        member = getattr(part, name)
        if tl.core.is_builtin(member):
            interpreter._patch_attr(part, name, member, *how)


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
