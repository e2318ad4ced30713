"""Run a Python file as a module."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


class NotPythonError(ImportError):
    """The file's name is not that of a Python file."""


def load_module(name: str, file: Path, *, folder: Path | None = None) -> ModuleType:
    """Run a file under a name of its own; a package has a folder for its modules.

    Raises:
        NotPythonError: it is no Python file.
    """
    search_locations = None
    if folder is not None:
        search_locations = [str(folder)]
    module_spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=search_locations
    )
    if module_spec is None or module_spec.loader is None:
        raise NotPythonError(f"{file.name} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    # Triton and dataclasses look a function's module up by name.
    sys.modules[name] = module
    module_spec.loader.exec_module(module)
    return module
