"""Triton's interpreter finds the same functions of the language by our list as by looking through all of it."""

import pytest
import triton.language as tl
from triton.runtime import interpreter

from roofwatch.collector.accuracy import evaluation as ours

PARTS = {"tl": tl, "tl.core": tl.core, "tl.tensor": tl.tensor, "tl.math": tl.math}


def found_in(part: object) -> list[str]:
    """Names that are to be interpreted, as they are until they are put back."""
    scope = interpreter._LangPatchScope()
    try:
        interpreter._patch_builtin(part, interpreter.interpreter_builder, scope)
        return [name for _, name, _ in scope._changes]
    finally:
        scope.restore()


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process whose interpreter rounds as a GPU does; here it is put back."""
    monkeypatch.setattr(interpreter, "_convert_float", interpreter._convert_float)
    monkeypatch.setattr(interpreter, "_patch_builtin", ours._patch_in_triton)
    monkeypatch.setattr(ours, "_to_interpret", {})


@pytest.mark.usefixtures("rounding")
def test_what_is_interpreted_is_known_once_and_is_what_triton_finds() -> None:
    whole = {name: found_in(part) for name, part in PARTS.items()}
    ours.round_as_a_gpu_does()
    known = {name: found_in(part) for name, part in PARTS.items()}

    assert interpreter._patch_builtin is ours._patch_known
    assert known == whole
    assert {"load", "dot"} <= set(known["tl"])
    assert {name: found_in(part) for name, part in PARTS.items()} == whole, "all of it was put back"


@pytest.mark.usefixtures("rounding")
def test_a_part_that_is_not_known_is_looked_through() -> None:
    ours.round_as_a_gpu_does()

    class Another:
        load = tl.load
        value = 5

    assert found_in(Another) == ["load"]
    assert Another.load is tl.load
