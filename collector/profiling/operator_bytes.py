"""Count the bytes that torch's operators move in one call."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OperatorBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is not typed
    """While it is active, adds up what operators read and write, by name; views move nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is not typed
        self.bytes_by_name: Counter[str] = Counter()
        self.elementwise_names: set[str] = set()
        """Operators whose result has one element for each element of the operands."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator, and add the bytes of its operands and results."""
        result = func(*args, **(kwargs or {}))
        if func.is_view:
            return result
        moved_bytes = 0
        for value in tree_leaves([args, kwargs, result]):
            if isinstance(value, torch.Tensor):
                moved_bytes += value.numel() * value.element_size()
        name = func.overloadpacket.__name__
        self.bytes_by_name[name] += moved_bytes
        if torch.Tag.pointwise in func.tags:
            self.elementwise_names.add(name)
        return result
