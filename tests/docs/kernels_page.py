"""What docs/kernels.md has to say, from the specs themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from roofwatch import Case, KernelSpec
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.kernels.models import DIFFUSION_TRANSFORMERS, GEMMA_2_9B, LANGUAGE_MODELS, SDXL
from roofwatch.kernels.registry import MODULES
from roofwatch.spec import Language


def kernel_lines(specs: Iterable[KernelSpec]) -> str:
    """One line a kernel, under a heading for each family in the order of the suite."""
    by_family: dict[str, list[KernelSpec]] = {}
    for spec in specs:
        by_family.setdefault(spec.family, []).append(spec)
    sections = []
    for family, members in by_family.items():
        lines = "\n".join(_line(spec) for spec in members)
        sections.append(f"### {family[0].upper()}{family[1:]}\n\n{lines}\n")
    return "\n".join(sections)


def model_rows() -> str:
    """The table of models that the shapes come from."""
    rows = ["| model | tag | published in |", "|---|---|---|"]
    for model in (*LANGUAGE_MODELS, GEMMA_2_9B):
        width = f"{model.hidden} wide, {model.n_heads} heads, {model.n_kv_heads} of keys"
        experts = f", {model.n_experts} experts of which {model.experts_per_token}" if model.n_experts else ""
        rows.append(f"| {width}{experts} | {_tags(model.name, model.scale)} | {model.source} |")
    rows.extend(
        f"| {image.hidden} wide, {image.n_heads} heads, {image.n_tokens} tokens | `{image.name}` | {image.source} |"
        for image in (SDXL, *DIFFUSION_TRANSFORMERS)
    )
    return "\n".join(rows) + "\n"


def _tags(name: str, scale: str | None) -> str:
    return f"`{name}`" + (f" `{scale}`" if scale else "")


def _line(spec: KernelSpec) -> str:
    cases = (*spec.cases, *spec.edges)
    directions = "fwd + bwd" if any(case.is_backward for case in cases) else "fwd"
    parts = [
        f"- **`{spec.name}`** ({directions}): {_first_sentence(import_module(MODULES[spec.name]).__doc__)}",
        f"`{spec.formula}`.",
        f"FLOP: {_cost(spec.flop_count)}",
        f"Bytes: {_cost(spec.memory_bytes)}",
        f"Dtypes: {' '.join(sorted({case.dtype for case in cases}))}.",
        f"Targets: {_targets(spec)}.",
        f"By: {' '.join(spec.implementations)}.",
        f"Source: {spec.source}.",
    ]
    return " ".join(parts)


def _first_sentence(text: str | None) -> str:
    assert text, "a module says what it is"
    return _flat(text).split(". ")[0].rstrip(".:") + "."


def _cost(count: Callable[[Case], float]) -> str:
    assert count.__doc__, f"{count.__name__} says what it counts"
    return _flat(count.__doc__).rstrip(".") + "."


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _targets(spec: KernelSpec) -> str:
    own = [how for how in spec.implementations.values() if how.language is not Language.TORCH]
    without = {
        target: [f"{how.name} ({how.unsupported_targets[target]})" for how in own if target in how.unsupported_targets]
        for target in DEFAULT_TARGETS
    }
    missing = [f"on {target} not {', '.join(reasons)}" for target, reasons in without.items() if reasons]
    if not own:
        return "none, it is torch's own"
    return "all" + (f"; {'; '.join(missing)}" if missing else "")
