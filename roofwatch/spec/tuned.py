"""Reads the configurations that `roofwatch tune` has chosen (docs/how-to/tune.md)."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from roofwatch.spec.case import SpecError

FORMAT: Literal["roofwatch-tuned-1"] = "roofwatch-tuned-1"


def tuned(
    file: str | os.PathLike[str],
    *,
    kernel: str,
    shape: Mapping[str, int | str],
    dtype: str | None = None,
    direction: str = "fwd",
    device: str | None = None,
    function: str | None = None,
) -> dict[str, Any]:
    """Return the configuration that was tuned for a device and the nearest shape.

    An entry measured on the device comes before one that is predicted for its target. Of several
    shapes, the one with the smallest sum of |log2(length / tuned length)| counts; words among the
    dimensions must be equal.

    Args:
        file: Written by `roofwatch tune --output`; a file that is not there has no entries.
        kernel: Name of the kernel's spec.
        shape: Lengths by dimension, as in the spec's cases.
        dtype: Of the main operand; None takes any.
        direction: `fwd` or `bwd`.
        device: A name as torch gives it, or a target such as `sm_90`. Default: the current GPU.
        function: Jitted function with an autotuner of its own; None for `configs=` of a spec.

    Returns:
        Keyword arguments by name; empty if nothing was tuned for the device.

    Raises:
        SpecError: the file is not a table of tuned configurations.
    """
    names = [device] if device is not None else _current_device()
    entries = [
        entry
        for entry in _entries(os.fspath(file))
        if (entry["kernel"], entry["direction"]) == (kernel, direction)
        and entry.get("function") == function
        and dtype in {None, entry["dtype"]}
    ]
    for name in names:
        of_device = [
            entry for entry in entries if name in {entry.get("device"), entry.get("target")}
        ]
        nearest = min(of_device, key=lambda entry: _distance(shape, entry["shape"]), default=None)
        if nearest is not None and math.isfinite(_distance(shape, nearest["shape"])):
            return dict(nearest["configuration"])
    return {}


@lru_cache(maxsize=64)  # a launcher asks at every call
def _entries(file: str) -> Iterable[dict[str, Any]]:
    path = Path(file)
    if not path.exists():
        return ()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise SpecError(f"{file}: format {document['format']!r}; this version reads {FORMAT!r}")
        entries: list[dict[str, Any]] = document["entries"]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{file}: no table of tuned configurations; write it again") from error
    return entries


def _current_device() -> list[str]:
    """Name and target of the current GPU, in the order in which entries are looked up."""
    import torch

    if not torch.cuda.is_available():
        return []
    properties = torch.cuda.get_device_properties()
    architecture = getattr(properties, "gcnArchName", "").partition(":")[0]
    # builds of torch for AMD name the target themselves
    if architecture.startswith("gfx"):
        return [properties.name, architecture]
    return [properties.name, f"sm_{properties.major}{properties.minor}"]


def _distance(shape: Mapping[str, int | str], tuned_shape: Mapping[str, int | str]) -> float:
    """Distance of two shapes in octaves; infinite if a word or a dimension differs."""
    if shape.keys() != tuned_shape.keys():
        return math.inf
    octaves = 0.0
    for name, length in shape.items():
        tuned_length = tuned_shape[name]
        if isinstance(length, str) or isinstance(tuned_length, str):
            if length != tuned_length:
                return math.inf
        else:
            octaves += abs(math.log2(max(length, 1) / max(tuned_length, 1)))
    return octaves
