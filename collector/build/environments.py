"""An environment for a revision: a virtual environment with the packages that its files require.

What they do not require comes from the environment that roofwatch runs in, which comes last on its
path; so do torch and Triton, unless the files require other versions.
"""

import importlib.util
import os
import shutil
import site
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from roofwatch.collector.build.build_cache import cached_build
from roofwatch.collector.build.commands import run_command
from roofwatch.collector.build.distributions import Distribution
from roofwatch.collector.build.requirements import declared_dependencies, locked_versions
from roofwatch.collector.digests import digest_of
from roofwatch.model.errors import BuildError

_REQUIREMENTS = "requirements.txt"


def make_environment(tree: Path, distributions: Sequence[Distribution]) -> Path:
    """Return the Python of an environment with what a tree's `requirements.txt` and distributions
    require, in the versions of its lock files.

    Raises:
        BuildError: a package cannot be installed.
    """
    lines = _requirement_lines(tree / _REQUIREMENTS)
    for distribution in distributions:
        lines += declared_dependencies(distribution.folder)
    constraints = locked_versions(tree)
    # whatever changes the environment is part of its name
    key = digest_of("environment", lines, constraints, sys.version, sys.prefix, shutil.which("uv"))

    def build(folder: Path) -> None:
        """Make the virtual environment, and install what the commit requires beyond ours."""
        venv.create(folder, with_pip=False, symlinks=True)
        python = _python_of(folder)
        _see_others(folder)
        if lines:
            _install(
                python=python,
                tree=tree,
                lines=lines,
                constraints=constraints,
            )

    return _python_of(cached_build(f"environment-{key[:32]}", build))


def _python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def _see_others(environment: Path) -> None:
    """Put the packages of this environment behind those of another one."""
    folders = [*site.getsitepackages()]
    if _has_user_site():
        folders.append(site.getusersitepackages())
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "of_roofwatch.pth").write_text("".join(lines))


def _has_user_site() -> bool:
    return bool(site.ENABLE_USER_SITE)


def _requirement_lines(file: Path) -> list[str]:
    """Lines of a requirements file without comments; none if it cannot be read."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    stripped_lines = map(str.strip, lines)
    return [line for line in stripped_lines if line and not line.startswith("#")]


def _install(
    python: Path,
    tree: Path,
    lines: Sequence[str],
    constraints: Sequence[str],
) -> None:
    """Install requirements with pip or uv, held to the locked versions."""
    with tempfile.TemporaryDirectory(prefix="roofwatch-requirements-") as folder:
        required = Path(folder) / _REQUIREMENTS
        required.write_text("\n".join(lines))
        limits = Path(folder) / "constraints.txt"
        limits.write_text("\n".join(constraints))
        command = [*_installer(python), "-r", str(required), "-c", str(limits)]
        quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = run_command(command, tree, quiet)
    if done.exit_status != 0:
        raise BuildError(
            f"the environment of the commit cannot be made: exit status {done.exit_status}; last "
            f"lines:\n{done.last_lines}"
        )


def _installer(python: Path) -> list[str]:
    """The command that installs into an environment: uv if there is one, else pip."""
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", str(python)]
    if importlib.util.find_spec("pip") is None:
        raise BuildError("[build] isolated: neither uv nor pip is installed; install one of them")
    return [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-input"]
