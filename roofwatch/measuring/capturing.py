"""Run a program so that its launches are noted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from roofwatch.collector.compile.signature import SIGNATURE_SUFFIX
from roofwatch.collector.errors import SuiteError
from roofwatch.install import INSTALL_ROOT, PACKAGE_DIR


def capture_signatures(command: Sequence[str], output: Path) -> int:
    """Run a program, and put the signatures of what it launches into a file beside those that are there.

    Args:
        command: A Python file or `-m` and a module, with arguments; `python` before it may be written too.
        output: The file of signatures.

    Returns:
        The exit status of the program.

    Raises:
        SuiteError: the file is none of signatures, or there is nothing to run.
    """
    words = list(command)
    if words and Path(words[0]).name.startswith("python"):
        words = words[1:]
    if output.suffix != SIGNATURE_SUFFIX:
        raise SuiteError(f"{output}: a file of signatures ends in {SIGNATURE_SUFFIX}")
    if not words or words == ["-m"] or (words[0] != "-m" and not Path(words[0]).is_file()):
        raise SuiteError(f"{' '.join(command) or 'no program'}: give a Python file, or -m and a module")
    entry = str(PACKAGE_DIR / "collector" / "compile" / "capture_main.py")
    paths = [os.environ.get("PYTHONPATH", ""), str(INSTALL_ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    arguments = [sys.executable, "-P", entry, str(output), "--", *words]
    return subprocess.run(arguments, check=False, env=environment).returncode
