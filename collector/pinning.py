"""Lets autotuned functions use given configurations instead of timing their own.

A verdict is then about code, and not about what the autotuner chose on either side.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from roofwatch.collector.autotune import function_of, key_text, plain_config
from roofwatch.model.measurement import Autotuning


@contextlib.contextmanager
def pinning(choices: Sequence[Autotuning]) -> Iterator[list[Autotuning]]:
    """Use the chosen configurations within the block; yield those that were used, after it.

    A choice is looked up by function and key, or by function alone if there is a single one or its
    key is empty. A function that does not have the configuration, or without a choice, is tuned as
    usual.
    """
    from triton.runtime.autotuner import Autotuner

    used: dict[tuple[str, str], Autotuning] = {}
    pinned: list[Autotuning] = []
    if not choices:
        yield pinned
        return
    original = Autotuner.run

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch with the pinned configuration if this key has one."""
        name = function_of(tuner).__name__
        key = _key_of(tuner, args, kwargs)
        choice = _choice_for(choices, name, key)
        config = None
        if choice is not None:
            config = _config_of(tuner, choice)
        if config is None:
            return original(tuner, *args, **kwargs)
        used[name, key] = Autotuning(
            function=name,
            key=key,
            chosen=plain_config(config),
            is_pinned=True,
        )
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        tuner.best_config = config  # which callers may read
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        try:
            return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        finally:
            tuner.nargs = None

    Autotuner.run = run
    try:
        yield pinned
    finally:
        Autotuner.run = original
        pinned.extend(used.values())


def _key_of(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Compute the key of the tuner's cache, as `Autotuner.run` of Triton 3.2 to 3.9 does."""
    arguments = dict(zip(tuner.arg_names, args, strict=False))
    arguments.update(kwargs)
    values = {name: value for name, value in arguments.items() if name in tuner.arg_names}
    key = [values[name] for name in tuner.keys if name in values]
    key += [str(value.dtype) for value in values.values() if hasattr(value, "dtype")]
    return key_text(tuple(key))


def _choice_for(choices: Sequence[Autotuning], function: str, key: str) -> Autotuning | None:
    """The choice for a key, or the only one of the function."""
    of_function = [choice for choice in choices if choice.function == function]
    for choice in of_function:
        if choice.key in {key, ""}:
            return choice
    # a change of the kernel's arguments changes the key
    if len(of_function) == 1:
        return of_function[0]
    return None


def _config_of(tuner: Any, choice: Autotuning) -> Any:
    for config in tuner.configs:
        if plain_config(config) == choice.chosen:
            return config
    return None
