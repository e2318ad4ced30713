"""Loaded by Python at startup if this folder is on PYTHONPATH: prepares the capture, then loads the
program's own `sitecustomize`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).resolve().parent


def _load_next(ours: ModuleType) -> None:
    """Load the program's own `sitecustomize`, if there is one."""
    del sys.modules["sitecustomize"]
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


_this = sys.modules.get("sitecustomize")
if _this is not None and Path(str(getattr(_this, "__file__", ""))).resolve().parent == _FOLDER:
    try:
        importlib.import_module("roofwatch_recorder").prepare()
    except Exception as error:  # noqa: BLE001  the program matters more than its profile
        print(
            f"roofwatch: this process is not profiled: {type(error).__name__}: {error}",
            file=sys.stderr,
        )
    # children inherit PYTHONPATH; this process sees its path without our folder
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _FOLDER]
    _load_next(_this)
