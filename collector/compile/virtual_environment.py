"""Virtual environments that differ from the running one in the version of Triton alone.

Each holds Triton and nothing else; all other packages come after it on the import path, from the running environment.
The environment of the running version holds nothing. They are kept in the cache folder.

A GPU build of torch asks for one version of Triton, which binds pip and not Python: compiling kernels needs only that
the two can be loaded together.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import site
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from roofwatch.collector.compile.cache import digest_of
from roofwatch.collector.errors import ToolchainError
from roofwatch.cuda import cache_dir
from roofwatch.install import INSTALL_ROOT

_VERSION = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)*")
_PRINT_VERSIONS = """
import json, platform, torch, triton
print(json.dumps({"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}))
"""
_MAX_REASON = 600


@dataclass(frozen=True)
class VirtualEnvironment:
    """One that was seen to work."""

    python: Path
    versions: dict[str, str]
    """Of `python`, `torch` and `triton`."""


def environment_with_triton(version: str, folder: Path | None = None) -> VirtualEnvironment:
    """The environment with a version of Triton, made where it is not there yet.

    Args:
        version: As pip knows it.
        folder: Of all environments; in the user's cache if left out.

    Raises:
        ToolchainError: not a version, pip cannot install it, or another one is imported in its place.
    """
    if not _VERSION.fullmatch(version):
        raise ToolchainError(f"triton {version}: not the version of a release; use for example 3.7.1")
    try:
        is_running = version == metadata.version("triton")
    except metadata.PackageNotFoundError:
        is_running = False
    name = "running" if is_running else f"triton-{version}"
    running_environment = digest_of(sys.version, sys.prefix, *map(str, _shared_folders()))
    root = (folder or cache_dir() / "environments") / f"{name}-{running_environment[:12]}"
    versions = _versions_in(root, version) if root.exists() else _make(root, version, is_running=is_running)
    return VirtualEnvironment(_python_of(root), versions)


def refuse_other_triton(wanted: str, imported: str) -> None:
    """Raises:
    ToolchainError: another version than the wanted one was imported.
    """
    if imported != wanted:
        raise ToolchainError(
            f"triton {wanted}: its environment imports triton {imported}; if PYTHONPATH names a folder with another "
            "Triton, unset it"
        )


def _shared_folders() -> list[Path]:
    """Where the running environment imports from."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [INSTALL_ROOT, *map(Path, folders)]


def _make(root: Path, version: str, *, is_running: bool) -> dict[str, str]:
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        # renamed when it works: two audits may make it at once, and either may be stopped
        unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=root.parent))
    except OSError as error:
        raise ToolchainError(f"{root.parent}: no environment can be made there: {error.strerror}") from None
    try:
        python = _python_of(unfinished)
        _run([sys.executable, "-m", "venv", "--without-pip", str(unfinished)], "no virtual environment can be made")
        if not is_running:
            install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-input"]
            _run(
                [*install, "--disable-pip-version-check", f"triton=={version}"],
                f"triton {version}: pip cannot install it",
            )
        _share_packages(python)
        versions = _versions_in(unfinished, version)
        put_in_place(unfinished, root)
        return versions
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def put_in_place(unfinished: Path, root: Path) -> None:
    """Rename a finished environment, unless another process was first: theirs is as good."""
    try:
        unfinished.rename(root)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
            raise


def _share_packages(python: Path) -> None:
    """Let the environment import what the running one has, after its own."""
    (own,) = (python.parent.parent / "lib").glob("python*/site-packages")
    lines = [
        # libraries that come as packages, such as NVRTC, are searched for under the prefixes
        f"import site; site.PREFIXES.append({sys.prefix!r})",
        *(f"import site; site.addsitedir({str(folder)!r})" for folder in _shared_folders()),
    ]
    (own / "running_environment.pth").write_text("".join(f"{line}\n" for line in lines))


def _versions_in(root: Path, version: str) -> dict[str, str]:
    """Raises:
    ToolchainError: torch and Triton cannot be loaded, or Triton is another version.
    """
    command = [str(_python_of(root)), "-P", "-c", _PRINT_VERSIONS]
    printed = _run(command, f"triton {version}: cannot be loaded together with torch")
    versions: dict[str, str] = json.loads(printed.splitlines()[-1])
    refuse_other_triton(version, versions["triton"])
    return versions


def _python_of(root: Path) -> Path:
    return root / "bin" / "python"


def _run(command: list[str], failure: str) -> str:
    """Standard output of a command.

    Raises:
        ToolchainError: it failed; the message ends with what it printed last.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise ToolchainError(f"{failure}: {error.strerror}") from None
    if done.returncode != 0:
        raise ToolchainError(f"{failure}: {reason_in(done.stderr) or f'exit status {done.returncode}'}")
    return done.stdout


def reason_in(text: str) -> str:
    """Why a program failed, by its output: the lines that name an error, else the last ones."""
    lines = text.splitlines()
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return " ".join(" ".join(errors or lines).split())[-_MAX_REASON:]
