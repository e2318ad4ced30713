"""Build a revision: install its packages into a folder of the cache."""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from roofwatch.collector.build.build_cache import cached_build
from roofwatch.collector.build.commands import run_command
from roofwatch.collector.build.distributions import Distribution
from roofwatch.collector.build.files import building_copy, digest_of_inputs
from roofwatch.collector.digests import digest_of
from roofwatch.model.build_settings import BuildSettings
from roofwatch.model.errors import BuildError

_COMPILERS = (("CC", "cc"), ("CXX", "c++"), ("CUDACXX", "nvcc"), ("HIPCXX", "hipcc"))
"""Environment variable and default program."""
_VARIABLES = (
    "CFLAGS",
    "CMAKE_ARGS",
    "CUDA_HOME",
    "CXXFLAGS",
    "LDFLAGS",
    "PYTORCH_ROCM_ARCH",
    "TORCH_CUDA_ARCH_LIST",
)
"""Environment variables that decide on what a build makes."""


class Builder:
    """Builds the distributions of one tree."""

    def __init__(
        self,
        tree: Path,
        settings: BuildSettings,
        suite: Path,
        python: Path | None = None,
        *,
        copies: bool,
    ) -> None:
        self._tree = tree
        self._python = python
        """Interpreter to build with; None for this one."""
        self._settings = settings
        self._copies = copies
        """The tree is the user's, so nothing may be written to it."""
        self._inputs = digest_of_inputs(tree, settings.inputs, suite)

    def build(self, distributions: Sequence[Distribution]) -> tuple[Path, ...]:
        """Return the folders to import from: of the command if there is one, else of each
        distribution.

        Raises:
            BuildError: a build failed.
        """
        command = self._settings.command
        if command is not None:
            return (
                self._prefix(
                    name="the build command",
                    command=command,
                    folder=Path(),
                ),
            )
        prefixes = []
        for distribution in distributions:
            folder = distribution.folder.relative_to(self._tree)
            command = _pip_command(self._python)
            prefixes.append(self._prefix(distribution.name, command, folder))
        return tuple(prefixes)

    def _prefix(self, name: str, command: str, folder: Path) -> Path:
        """Run a build command unless its result is cached; return the folder of its packages."""
        key = digest_of(self._inputs, command, folder.as_posix(), _toolchain())

        def build(prefix: Path) -> None:
            with contextlib.ExitStack() as stack:
                tree = self._tree
                if self._copies:
                    tree = stack.enter_context(building_copy(tree))
                _run(
                    name=name,
                    command=command,
                    source=tree / folder,
                    prefix=prefix,
                )

        return _packages_in(cached_build(key[:32], build))


def _pip_command(python: Path | None) -> str:
    """The default command, as a template."""
    interpreter = shlex.quote(sys.executable)
    if python is None:
        target = interpreter
    else:
        target = shlex.quote(str(python))
    options = "--no-deps --no-build-isolation --target {prefix} {source}"
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip install --quiet --python {target} {options}"
    pip = f"{interpreter} -m pip --disable-pip-version-check --no-input"
    if python is not None:
        pip += f" --python {target}"
    return f"{pip} install --root-user-action ignore {options}"


def _run(
    name: str,
    command: str,
    source: Path,
    prefix: Path,
) -> None:
    """Run a build in the folder of its source.

    Raises:
        BuildError: it failed, or it installed nothing.
    """
    folders = {"{source}": shlex.quote(str(source)), "{prefix}": shlex.quote(str(prefix))}
    for word, folder in folders.items():
        command = command.replace(word, folder)
    done = run_command(["sh", "-c", command], source)
    # the source is a copy, whose folder says nothing to a reader
    last = done.last_lines.replace(f"{source}/", "")
    if done.exit_status != 0:
        raise BuildError(
            f"{name}: cannot be built: exit status {done.exit_status}; last lines of the "
            f"build:\n{last}"
        )
    # a build that installed elsewhere would be measured as the old code
    if not any(prefix.iterdir()):
        raise BuildError(f"{name}: the build put nothing into {{prefix}}; its last lines:\n{last}")


def _packages_in(prefix: Path) -> Path:
    """The folder of a prefix that holds packages: itself, or what `pip install --prefix` makes."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for library in ("lib", "lib64"):
        packages = prefix / library / version / "site-packages"
        if packages.is_dir():
            return packages
    return prefix


@cache
def _toolchain() -> tuple[object, ...]:
    """What a build depends on besides its inputs."""
    compilers = [_version_of(os.environ.get(name) or program) for name, program in _COMPILERS]
    settings = [os.environ.get(name) for name in _VARIABLES]
    return (sys.version, platform.machine(), _torch_version(), compilers, settings)


def _torch_version() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def _version_of(program: str) -> str | None:
    """First line of what a compiler says of itself; None without it."""
    try:
        words = [*shlex.split(program), "--version"]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
        )
    except (OSError, ValueError):
        return None
    return done.stdout
