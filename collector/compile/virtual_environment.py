"""Virtual environments that differ from the running one only in the version of Triton.

Each contains Triton; all other packages come from the running environment. torch pins one version of Triton for pip,
but compiling kernels only needs that both can be imported together.
"""

from __future__ import annotations

import json
import re
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
    python: Path
    versions: dict[str, str]
    """Versions of `python`, `torch` and `triton`."""


def environment_with_triton(version: str, folder: Path | None = None) -> VirtualEnvironment:
    """Return an environment with a version of Triton; create it on first use.

    Args:
        version: A release that pip can install.
        folder: Folder of all environments; default in the user's cache.

    Raises:
        ToolchainError: pip cannot install the version, or another version is imported.
    """
    if not _VERSION.fullmatch(version):
        raise ToolchainError(f"triton {version}: not the version of a release; use for example 3.7.1")
    parent = folder or cache_dir() / "environments"
    shared = _shared_folders()
    root = parent / f"triton-{version}-{digest_of(sys.version, sys.prefix, shared)[:12]}"
    if not root.exists():
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=parent) as unfinished:
                _create(Path(unfinished) / "environment", version, shared)
                (Path(unfinished) / "environment").rename(root)
        except OSError as error:
            raise ToolchainError(f"{parent}: cannot create a virtual environment: {error.strerror}") from None
    return _checked(root, version)


def check_version(expected: str, imported: str) -> None:
    """Raises:
    ToolchainError: another version than expected was imported.
    """
    if imported != expected:
        raise ToolchainError(
            f"triton {expected}: its environment imports triton {imported}; if PYTHONPATH names a folder with another "
            "Triton, unset it"
        )


def _shared_folders() -> list[str]:
    """Return the folders that the running environment imports packages from."""
    user_folders = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [str(INSTALL_ROOT), *site.getsitepackages(), *user_folders]


def _create(root: Path, version: str, shared: list[str]) -> None:
    _run([sys.executable, "-m", "venv", "--without-pip", str(root)], "cannot create a virtual environment")
    if version not in {package.version for package in metadata.distributions(name="triton")}:
        pip = [sys.executable, "-m", "pip", "--python", str(root / "bin" / "python"), "--disable-pip-version-check"]
        install = [*pip, "install", "--no-deps", "--no-input", f"triton=={version}"]
        _run(install, f"triton {version}: pip cannot install it")
    (packages,) = (root / "lib").glob("python*/site-packages")
    lines = [
        # libraries that come as packages, such as NVRTC, are searched for under the prefixes
        f"import site; site.PREFIXES.append({sys.prefix!r})",
        *(f"import site; site.addsitedir({folder!r})" for folder in shared),
    ]
    (packages / "running_environment.pth").write_text("".join(f"{line}\n" for line in lines))
    _checked(root, version)


def _checked(root: Path, version: str) -> VirtualEnvironment:
    python = root / "bin" / "python"
    printed = _run([str(python), "-P", "-c", _PRINT_VERSIONS], f"triton {version}: cannot be imported with torch")
    versions: dict[str, str] = json.loads(printed.splitlines()[-1])
    check_version(version, versions["triton"])
    return VirtualEnvironment(python, versions)


def _run(command: list[str], failure: str) -> str:
    """Return standard output of a command.

    Raises:
        ToolchainError: the command failed; the message ends with its error lines.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        reason = " ".join(" ".join(errors or lines).split())[-_MAX_REASON:]
        raise ToolchainError(f"{failure}: {reason or f'exit status {done.returncode}'}")
    return done.stdout
