"""Find the line of the user's code in a stack."""

import sys
import traceback
from pathlib import Path
from types import FrameType

_PACKAGE = Path(__file__).parents[1]
_OWN_FOLDERS = (f"{_PACKAGE}/collector/", f"{_PACKAGE}/spec/")
"""Code of ours that calls a kernel; bundled kernels count as a user's code."""
_LIBRARIES = ("triton", "torch", "numpy")


def kernel_error(error: BaseException) -> BaseException:
    """The error that a kernel raised, within that of Triton's interpreter around it."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def place_in_user_code(error: BaseException) -> str | None:
    """File, line and function of the innermost frame of the user's code; None without one."""
    frame = frame_in_user_code(error)
    if frame is None:
        return None
    return f"{short_path(frame.filename)}:{frame.lineno}, in {frame.name}"


def frame_in_user_code(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame of the user's code."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_user_code(frame.filename):
            return frame
    return None


def current_place() -> tuple[str, int]:
    """File and line of the innermost running frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_user_code(frame.f_code.co_filename):
            return short_path(frame.f_code.co_filename), frame.f_lineno
        frame = frame.f_back
    return "?", 0


def short_path(file: str) -> str:
    """A file's path below the folder that Python imports it from."""
    # The longest folder gives the shortest name.
    folders = [folder for folder in sys.path if folder and file.startswith(f"{folder}/")]
    longest = max(folders, key=len, default="")
    if longest:
        return file.removeprefix(f"{longest}/")
    return Path(file).name


def _is_user_code(file: str) -> bool:
    # `<` begins the name of generated code.
    return not file.startswith((*_library_folders(), *_OWN_FOLDERS, "<"))


def _library_folders() -> list[str]:
    modules = [sys.modules.get(name) for name in _LIBRARIES]
    files = [getattr(module, "__file__", None) for module in modules]
    return [f"{Path(file).parent}/" for file in files if file]
