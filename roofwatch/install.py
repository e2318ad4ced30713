"""Where this roofwatch is installed, and how to start its modules as processes."""

import json
import sys
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
"""The package itself."""
INSTALL_ROOT = PACKAGE_DIR.parent
"""The folder that makes `import roofwatch` work when it is on `sys.path`; in a checkout, the
repository's root.
"""

# our folder is first while our modules are imported, then last: a suite finds its own packages
# first
_BOOT = """
import json, sys
from importlib import import_module
root, module, arguments = sys.argv[1:]
sys.path.insert(0, root)
main = import_module(module).main
sys.path.remove(root)
sys.path.append(root)
main(*json.loads(arguments))
"""


# an environment of its own may have another roofwatch, and has its own torch
_BOOT_ELSEWHERE = """
import importlib.util, json, sys
root, module, arguments = sys.argv[1:]
folder = f"{root}/roofwatch"
spec = importlib.util.spec_from_file_location(
    "roofwatch", f"{folder}/__init__.py", submodule_search_locations=[folder]
)
package = importlib.util.module_from_spec(spec)
sys.modules["roofwatch"] = package
spec.loader.exec_module(package)
importlib.import_module(module).main(*json.loads(arguments))
"""


def python_command(module: str, *arguments: int | str, python: Path | None = None) -> list[str]:
    """The command that calls `main` of one of our modules in a new process, of another environment
    if its Python is given.
    """
    program = [sys.executable, "-P", "-c", _BOOT]
    if python is not None:
        program = [str(python), "-P", "-c", _BOOT_ELSEWHERE]
    return [*program, str(INSTALL_ROOT), module, json.dumps(arguments)]
