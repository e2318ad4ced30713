"""What a launch that ran no GPU code returns to a package that keeps compiled kernels itself."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any


class LaunchedKernel:
    """Launches a function again, with the same constant arguments, as a compiled kernel does.

    There is no code to ask. Launchers get typical figures where they ask how many programs fit.
    """

    n_regs = 64
    n_spills = 0
    metadata = SimpleNamespace(
        shared=1_024,
        num_warps=4,
        num_ctas=1,
    )

    def __init__(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        constants: set[str],
    ) -> None:
        self._function = function
        named = dict(zip(function.arg_names, args, strict=False))
        named.update(kwargs)
        self._constants = {name: value for name, value in named.items() if name in constants}

    def _init_handles(self) -> None:
        """Load the kernel onto a device, which is not there."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """A launcher for a grid, which takes the arguments as compiled kernels do."""

        def launch(*args: Any) -> Any:
            # some releases of Triton leave the constants out
            names: list[str] = self._function.arg_names
            if len(args) < len(names):
                names = [name for name in names if name not in self._constants]
            arguments = {**self._constants, **dict(zip(names, args, strict=False))}
            return self._function.run(
                grid=grid,
                warmup=False,
                **arguments,
            )

        return launch
