"""Virtual environments that differ from the running one in the version of Triton alone.

Each holds Triton and nothing else; all other packages, torch and roofwatch among them, are those of the running
environment and come after it on the import path. So an environment takes the time and space of one wheel, and what
differs between two of them is Triton's doing. That of the version which runs holds nothing: it imports that one too.
They are kept in the cache folder for the next time.

A build of torch for a GPU asks for one version of Triton, which binds pip and not Python: compiling kernels needs only
that the two can be loaded together.
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
_INTRODUCE = """
import json, platform, torch, triton
print(json.dumps({"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}))
"""
_MAX_REASON = 600


@dataclass(frozen=True)
class VirtualEnvironment:
    """One that was seen to work: its interpreter, and the versions of what compiles."""

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
    is_running = version == _running_triton()
    # whatever runs then is what the environment without a Triton of its own imports
    name = "running" if is_running else f"triton-{version}"
    root = (folder or cache_dir() / "environments") / f"{name}-{_running_environment()[:12]}"
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


def _running_triton() -> str | None:
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


def _running_environment() -> str:
    return digest_of(sys.version, sys.prefix, *map(str, _shared_folders()))


def _shared_folders() -> list[Path]:
    """Where the running environment imports from."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [INSTALL_ROOT, *map(Path, folders)]


def _make(root: Path, version: str, *, is_running: bool) -> dict[str, str]:
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        # whole or not at all: two audits may make it at once, and either may be stopped
        unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=root.parent))
    except OSError as error:
        raise ToolchainError(f"{root.parent}: no environment can be made there: {error.strerror}") from None
    try:
        python = _python_of(unfinished)
        _run([sys.executable, "-m", "venv", "--without-pip", str(unfinished)], "no virtual environment can be made")
        if not is_running:
            _run(
                [
                    *(sys.executable, "-m", "pip", "--python", str(python), "install"),
                    *("--no-deps", "--no-input", "--disable-pip-version-check", f"triton=={version}"),
                ],
                f"triton {version}: pip cannot install it",
            )
        _share_packages(python)
        versions = _versions_in(unfinished, version)  # what does not work is not kept
        put_in_place(unfinished, root)
        return versions
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def put_in_place(unfinished: Path, root: Path) -> None:
    """Name a finished environment, unless another process was first: theirs is as good."""
    try:
        unfinished.rename(root)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
            raise


def _share_packages(python: Path) -> None:
    """Let the environment import what the running one has, after its own."""
    (own,) = (python.parent.parent / "lib").glob("python*/site-packages")
    folders = [str(folder) for folder in _shared_folders()]
    lines = [
        # libraries that come as packages, such as NVRTC, are searched for under the prefixes
        f"import site; site.PREFIXES.append({sys.prefix!r})",
        *(f"import site; site.addsitedir({folder!r})" for folder in folders),
    ]
    (own / "running_environment.pth").write_text("".join(f"{line}\n" for line in lines))


def _versions_in(root: Path, version: str) -> dict[str, str]:
    """Raises:
    ToolchainError: torch and Triton cannot be loaded, or Triton is another version.
    """
    said = _run(
        [str(_python_of(root)), "-P", "-c", _INTRODUCE], f"triton {version}: cannot be loaded together with torch"
    )
    versions: dict[str, str] = json.loads(said.splitlines()[-1])
    refuse_other_triton(version, versions["triton"])
    return versions


def _python_of(root: Path) -> Path:
    return root / "bin" / "python"


def _run(command: list[str], failure: str) -> str:
    """Standard output of a command.

    Raises:
        ToolchainError: it failed; the message ends with what it said last.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise ToolchainError(f"{failure}: {error.strerror}") from None
    if done.returncode != 0:
        raise ToolchainError(f"{failure}: {reason_in(done.stderr) or f'exit status {done.returncode}'}")
    return done.stdout


def reason_in(said: str) -> str:
    """What a program gives as the reason why it failed: its lines that say so, else the last ones."""
    lines = said.splitlines()
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return " ".join(" ".join(errors or lines).split())[-_MAX_REASON:]
