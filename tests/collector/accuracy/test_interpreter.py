"""The patched interpreter finds the same builtins of the language as Triton does."""

import pytest
import triton.language as tl
from triton.runtime import interpreter

from roofwatch.collector.accuracy import evaluation as ours

PARTS = {"tl": tl, "tl.core": tl.core, "tl.tensor": tl.tensor, "tl.math": tl.math}


def found_in(part: object) -> list[str]:
    """Names of patched builtins, which are restored."""
    scope = interpreter._LangPatchScope()
    try:
        interpreter._patch_builtin(part, interpreter.interpreter_builder, scope)
        return [name for _, name, _ in scope._changes]
    finally:
        scope.restore()


@pytest.fixture
def unpatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start unpatched, and restore the state of this process."""
    monkeypatch.setattr(interpreter, "_convert_float", interpreter._convert_float)
    monkeypatch.setattr(interpreter, "_patch_builtin", ours._original_patch)
    monkeypatch.setattr(ours, "_builtin_names", {})


@pytest.mark.usefixtures("unpatched")
def test_known_builtins_are_those_that_triton_finds() -> None:
    whole = {name: found_in(part) for name, part in PARTS.items()}
    ours.patch_interpreter()
    known = {name: found_in(part) for name, part in PARTS.items()}

    assert interpreter._patch_builtin is ours._patch_builtin
    assert known == whole
    assert {"load", "dot"} <= set(known["tl"])
    assert {name: found_in(part) for name, part in PARTS.items()} == whole
