"""Correct Triton's interpreter, and require that the corrections work.

They replace functions of Triton that any release may rename. An interpreter without them runs
kernels too, but does not round as a GPU does and sees no access out of bounds.
"""

import functools

from roofwatch.spec.case import UnsupportedError


class UncorrectedInterpreterError(UnsupportedError):
    """Triton's interpreter does not compute as a GPU does, so its results prove nothing."""


def correct_interpreter() -> None:
    """Make the interpreter of this process compute as a GPU does, and test its accesses.

    Raises:
        UncorrectedInterpreterError: the corrections do not fit this release of Triton.
    """
    defect = interpreter_defect()
    if defect is not None:
        raise UncorrectedInterpreterError(defect)


@functools.cache
def interpreter_defect() -> str | None:
    """Correct the interpreter, and return why its results prove nothing all the same."""
    try:
        # Importing them needs NumPy and the functions that they replace. The kernels of the trial
        # are interpreted as others if they are made after the corrections.
        from roofwatch.collector.accuracy.interpreter import patch_interpreter

        patch_interpreter()
        from roofwatch.collector.accuracy.interpreter_trial import wrong_answers

        wrong = wrong_answers()
    except Exception as error:  # noqa: BLE001  a function that is gone shows in many ways
        return _message(f"{type(error).__name__}: {error}")
    if wrong:
        return _message(f"wrong: {', '.join(wrong)}")
    return None


def _message(reason: str) -> str:
    """Explain why the interpreter is not used, and how to check the kernel anyway."""
    import triton

    return (
        f"Triton {triton.__version__}'s interpreter cannot be corrected, so its results prove "
        f"nothing ({reason}); install triton 3.6 to 3.9, or check on a GPU"
    )
