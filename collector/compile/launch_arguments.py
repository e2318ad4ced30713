"""What a launch passes to a jitted function: integers, tensors and the grid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Part:
    """What the IR has one argument for."""

    name: str
    value: Any
    kind: Any
    """Triton's type, or `constexpr`."""


@dataclass(frozen=True)
class LaunchShape:
    """How one launch is shaped."""

    grid: tuple[int, int, int]
    arguments: Mapping[str, int] = field(default_factory=dict)
    """Integers by name."""
    names: tuple[str, ...] = ()
    """Of the arguments that the IR has, in order."""
    tensor_bytes: int = 0
    """Of all tensors, each counted once."""
    largest_tensor: int = 0
    """Elements of the largest tensor."""


def shape_of(parts: Sequence[Part], grid: Any) -> LaunchShape:
    """Describe a launch; `grid` is what the launcher gave, or what its function returned."""
    values = {part.name: part.value for part in parts}
    tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]
    return LaunchShape(
        grid=three(grid),
        arguments=integers_of(parts),
        names=tuple(part.name for part in parts if part.kind != "constexpr"),
        tensor_bytes=bytes_of(tensors),
        largest_tensor=max((tensor.numel() for tensor in tensors), default=0),
    )


def integers_of(parts: Sequence[Part]) -> dict[str, int]:
    return {part.name: int(part.value) for part in parts if isinstance(part.value, (int, bool))}


def parts_of(values: Mapping[str, Any], signature: Mapping[str, Any]) -> Iterator[Part]:
    """Split the arguments of a call into what the IR has one argument for."""
    for name, value in values.items():
        yield from _parts(name, value, signature.get(name))


def _parts(name: str, value: Any, kind: Any) -> Iterator[Part]:
    if isinstance(value, tuple) and isinstance(kind, tuple):
        for index, (part, part_kind) in enumerate(zip(value, kind, strict=False)):
            yield from _parts(f"{name}[{index}]", part, part_kind)
    elif str(kind).startswith("tensordesc"):
        yield Part(name=name, value=value.base, kind=kind)
        for field_name in ("shape", "strides"):
            for index, length in enumerate(getattr(value, field_name)):
                yield Part(name=f"{name}.{field_name}[{index}]", value=length, kind="i64")
    else:
        yield Part(name=name, value=value, kind=kind)


def three(grid: Any) -> tuple[int, int, int]:
    sizes = grid if isinstance(grid, (tuple, list)) else (grid,)
    padded = [*map(int, sizes), 1, 1, 1]
    return padded[0], padded[1], padded[2]


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    by_view = {
        (tensor.untyped_storage()._cdata, tensor.storage_offset()): tensor for tensor in tensors
    }
    return sum(tensor.numel() * tensor.element_size() for tensor in by_view.values())


def bound_options(function: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Add the options that `JITFunction.run` of the installed Triton adds to a launch's."""
    from triton import knobs

    options = {**kwargs, "debug": kwargs.get("debug", function.debug)}
    # Triton has it since 3.6
    mode = getattr(knobs.compilation, "instrumentation_mode", None)
    if mode is not None:
        options["instrumentation_mode"] = mode
    return options
