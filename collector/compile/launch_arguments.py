"""What a launch passes to a jitted function: integers, tensors and the grid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from roofwatch.collector.compile.cycles.sectors import SMALLEST_SECTOR, sector_bytes


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
    """Of all tensors, each counted once, with what lies between elements of one sector."""
    largest_tensor: int = 0
    """Elements of the largest tensor."""


def shape_of(parts: Sequence[Part], grid: Any) -> LaunchShape:
    """Describe a launch; `grid` is what the launcher gave, or what its function returned."""
    tensors = list(tensors_of(parts).values())
    element_counts = [tensor.numel() for tensor in tensors]
    # a constexpr is part of the code
    argument_names = [part.name for part in parts if part.kind != "constexpr"]
    return LaunchShape(
        grid=three(grid),
        arguments=integers_of(parts),
        names=tuple(argument_names),
        tensor_bytes=touched_bytes_of(tensors),
        largest_tensor=max(element_counts, default=0),
    )


def integers_of(parts: Sequence[Part]) -> dict[str, int]:
    """Integer arguments by name; a boolean is 0 or 1."""
    integers: dict[str, int] = {}
    for part in parts:
        if isinstance(part.value, (int, bool)):
            integers[part.name] = int(part.value)
    return integers


def tensors_of(parts: Sequence[Part]) -> dict[str, torch.Tensor]:
    """Tensors among the arguments, by name."""
    tensors: dict[str, torch.Tensor] = {}
    for part in parts:
        tensor = _tensor_of(part.value)
        if tensor is not None:
            tensors[part.name] = tensor
    return tensors


def _tensor_of(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    # packages have views of their own, for strides that torch does not allow
    if hasattr(value, "data_ptr") and hasattr(value, "__dict__"):
        for held in vars(value).values():
            if isinstance(held, torch.Tensor):
                return held
    return None


def parts_of(values: Mapping[str, Any], signature: Mapping[str, Any]) -> Iterator[Part]:
    """Split the arguments of a call into what the IR has one argument for."""
    for name, value in values.items():
        yield from _parts(name, value, signature.get(name))


def _parts(name: str, value: Any, kind: Any) -> Iterator[Part]:
    """Split a tuple or a tensor descriptor into the arguments that the kernel receives."""
    if isinstance(value, tuple) and isinstance(kind, tuple):
        for index, (member, member_kind) in enumerate(zip(value, kind, strict=False)):
            yield from _parts(f"{name}[{index}]", member, member_kind)
    elif str(kind).startswith("tensordesc"):
        yield from _descriptor_parts(name, value, kind)
    else:
        yield Part(
            name=name,
            value=value,
            kind=kind,
        )


def _descriptor_parts(name: str, descriptor: Any, kind: Any) -> Iterator[Part]:
    """Split a tensor descriptor: its tensor, then a 64-bit integer for each length and stride."""
    yield Part(
        name=name,
        value=descriptor.base,
        kind=kind,
    )
    for field_name in ("shape", "strides"):
        lengths = getattr(descriptor, field_name)
        for index, length in enumerate(lengths):
            yield Part(
                name=f"{name}.{field_name}[{index}]",
                value=length,
                kind="i64",
            )


def three(grid: Any) -> tuple[int, int, int]:
    """Fill the axes that a grid leaves out; a number is the first axis."""
    sizes = [grid]
    if isinstance(grid, (tuple, list)):
        sizes = list(grid)
    x, y, z, *_ = [*sizes, 1, 1, 1]
    return int(x), int(y), int(z)


def touched_bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the sectors that tensors lie in; those that begin at one address count once."""
    bytes_by_view: dict[tuple[int, int | torch.SymInt], int] = {}
    for tensor in tensors:
        view = (tensor.untyped_storage()._cdata, tensor.storage_offset())
        bytes_by_view[view] = 0
        if not tensor.numel():
            continue
        touched_bytes, _ = sector_bytes(
            tensor.shape,
            tensor.stride(),
            element_bytes=tensor.element_size(),
            sector_size=SMALLEST_SECTOR,
        )
        bytes_by_view[view] = round(touched_bytes)
    return sum(bytes_by_view.values())


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of tensors; those that begin at one address count once."""
    bytes_by_view: dict[tuple[int, int | torch.SymInt], int] = {}
    for tensor in tensors:
        # tensors without memory have no address, so the storage object stands for it
        view = (tensor.untyped_storage()._cdata, tensor.storage_offset())
        bytes_by_view[view] = tensor.numel() * tensor.element_size()
    return sum(bytes_by_view.values())


def bound_options(function: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Add the options that `JITFunction.run` of the installed Triton adds to a launch's."""
    from triton import knobs

    options = {**kwargs, "debug": kwargs.get("debug", function.debug)}
    # Triton has it since 3.6
    mode = getattr(knobs.compilation, "instrumentation_mode", None)
    if mode is not None:
        options["instrumentation_mode"] = mode
    return options
