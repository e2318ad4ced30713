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


def python_command(module: str, *arguments: int | str) -> list[str]:
    """The command that calls `main` of one of our modules in a new process."""
    return [sys.executable, "-P", "-c", _BOOT, str(INSTALL_ROOT), module, json.dumps(arguments)]
