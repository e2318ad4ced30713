"""The modules that an extra installs, and processes that can import no others."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from roofwatch.install import INSTALL_ROOT


def installed_by(*extras: str) -> set[str]:
    """The distributions that `pip install roofwatch[...]` brings, with what they need in turn."""
    project = tomllib.loads((INSTALL_ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    waiting = [Requirement(line) for line in lines]
    names: set[str] = set()
    # grows
    for needed in waiting:
        names.add(canonicalize_name(needed.name))
        for following in map(Requirement, requires(needed.name) or []):
            is_needed = following.marker is None or any(
                following.marker.evaluate({"extra": extra}) for extra in ["", *needed.extras]
            )
            if is_needed and canonicalize_name(following.name) not in names:
                waiting.append(following)
    return names


def blocked_modules(*extras: str) -> list[str]:
    """The modules of this environment that `pip install roofwatch[...]` does not bring."""
    installed = installed_by(*extras)
    blocked = set()
    for module, distributions in packages_distributions().items():
        is_installed = {canonicalize_name(name) for name in distributions} & installed
        if not is_installed and re.fullmatch(r"\w+", module):
            blocked.add(module)
    return sorted(blocked - {"roofwatch", "sitecustomize"} - sys.stdlib_module_names)


def only_with(folder: Path, *extras: str) -> dict[str, str]:
    """The environment of processes that can import what some extras install, and nothing else."""
    blocked = blocked_modules(*extras)
    assert {"sqlalchemy", "pandas"} <= set(blocked)
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.modules |= dict.fromkeys({blocked!r})\n"
    )
    return {"PYTHONPATH": f"{folder}:{INSTALL_ROOT}"}
