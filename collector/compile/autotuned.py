"""Chooses which configurations of an autotuned function are compiled."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from roofwatch.collector.autotune import plain_config
from roofwatch.collector.compile.target_device import replaced
from roofwatch.model.machine import Configuration

MOST_CONFIGURATIONS = 12
"""Of one launch. A backward pass of an attention kernel may have hundreds."""
_NOT_WRAPPERS = ("triton.", "torch.", "roofwatch.")
"""Modules whose own classes of kernels keep their `run`."""


def every_chosen_configuration(
    tuned: list[Configuration], most: int | None = MOST_CONFIGURATIONS
) -> Callable[..., Any]:
    """Make a replacement of `Autotuner.run` that launches each chosen configuration once.

    `tuned` holds the configuration while it is launched.
    """

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the function once in each configuration that pruning leaves, up to the most."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        if len(self.configs) > 1:
            pruned = self.prune_configs(kwargs)
        else:
            pruned = self.configs
        chosen = _chosen(list(pruned), most)
        kernel = None
        for config in chosen:
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            self.best_config = config  # which callers may read
            if len(self.configs) > 1:
                tuned[:] = [plain_config(config)]
            try:
                kernel = self.fn.run(*args, **kwargs, **config.all_kwargs())
            finally:
                tuned.clear()
        return kernel

    return run


@contextlib.contextmanager
def tuning_with(run: Callable[..., Any]) -> Iterator[None]:
    """Replace `run` of Triton's autotuner within the block, and of classes that packages derive
    from Triton's, also if they are imported there.

    Other wrappers of jitted functions, such as FlagGems' `LibEntry`, keep compiled kernels. They
    launch what they wrap instead, so that no target gets the code of another.
    """
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import KernelInterface

    with contextlib.ExitStack() as stack:

        def replace_run(kind: Any, /, **_options: object) -> None:
            if "run" not in vars(kind):
                return
            if issubclass(kind, Autotuner):
                stack.enter_context(
                    replaced(
                        owner=kind,
                        name="run",
                        value=run,
                    )
                )
            elif not kind.__module__.startswith(_NOT_WRAPPERS):
                stack.enter_context(
                    replaced(
                        owner=kind,
                        name="run",
                        value=_launch_wrapped,
                    )
                )

        for kind in _derived_from(KernelInterface):
            replace_run(kind)
        # a package that is imported later may derive another one
        stack.enter_context(
            replaced(
                owner=KernelInterface,
                name="__init_subclass__",
                value=classmethod(replace_run),
            )
        )
        yield


def _derived_from(kind: Any) -> Iterator[Any]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _derived_from(derived)


def _launch_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.fn.run(*args, **kwargs)


def name_of_tuned(function: str, tuned: list[Configuration]) -> str:
    """Name a function with the configuration that is being launched, if it is autotuned."""
    return function + "".join(map(_in_words, tuned))


def _in_words(configuration: Configuration) -> str:
    options = [f"{name}={value}" for name, value in configuration.items()]
    return f"[{','.join(options)}]"


def _chosen(configs: list[Any], most: int | None) -> list[Any]:
    """Keep at most some configurations, in their order.

    The choice depends on each configuration alone, so that one more in the list moves only one.
    """
    if most is None or len(configs) <= most:
        return configs

    def digest(position: int) -> str:
        return hashlib.sha256(_in_words(plain_config(configs[position])).encode()).hexdigest()

    positions = sorted(range(len(configs)), key=digest)[:most]
    return [configs[position] for position in sorted(positions)]
