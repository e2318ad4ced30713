"""Other releases of Triton: from a package index, a wheel, or an installed environment."""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from roofwatch.collector.digests import digest_of, digest_of_file
from roofwatch.model.errors import ToolchainError
from roofwatch.model.files import cache_dir

_REQUIREMENT = re.compile(
    r"(?:(?P<name>[A-Za-z0-9._-]+)==)?"
    r"(?P<version>\d+(?:\.\d+)+(?:(?:a|b|rc|\.post|\.dev)\d+)*(?:\+[A-Za-z0-9.]+)?)"
)
"""A version as PEP 440 writes it; vendors add a local part, such as `3.7.0+amd.rocm7`."""
_MAX_REASON = 600


@dataclass(frozen=True)
class Toolchain:
    """A folder with a package `triton` that comes before the installed one."""

    name: str
    packages: Path | None
    """None for the release that runs."""


def find_toolchain(text: str, *, extra_index_url: str | None = None) -> Toolchain:
    """Find or install a release: a version, `NAME==VERSION`, a wheel, or an environment's folder.

    torch pins one release of Triton for pip, but compiling kernels only needs that both can be
    imported together.

    Raises:
        ToolchainError: it cannot be installed, or there is no Triton.
    """
    path = Path(text).expanduser()
    if path.suffix == ".whl":
        if not path.is_file():
            raise ToolchainError(f"{text}: no such wheel")
        # by its content: a nightly build may keep its name
        folder = _folder(f"wheel-{digest_of(digest_of_file(path))[:16]}")
        return Toolchain(f"triton of {path.name}", _installed(folder, str(path.resolve()), text))
    if path.is_dir():
        return Toolchain(f"triton of {text}", _linked(path))
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise ToolchainError(
            f"triton {text}: neither a version such as 3.7.1 or 3.7.0+amd.rocm7, nor a wheel, nor "
            f"the folder of an environment"
        )
    package = match["name"] or "triton"
    # the installed release needs no second copy
    if package == "triton" and match["version"] == version("triton"):
        return Toolchain(f"triton {text}", None)
    folder = _folder(f"{package}-{match['version']}")
    requirement = f"{package}=={match['version']}"
    packages = _installed(folder, requirement, text, extra_index_url=extra_index_url)
    return Toolchain(f"{package} {match['version']}", packages)


def _folder(name: str) -> Path:
    return cache_dir() / "environments" / f"{name}-{sys.implementation.cache_tag}"


def _linked(environment: Path) -> Path:
    """Make a folder with the Triton of an environment and none of its other packages."""
    places = [environment, *environment.glob("lib/python*/site-packages")]
    for packages in places:
        source = packages / "triton"
        if not (source / "__init__.py").is_file():
            continue
        folder = _folder(f"linked-{digest_of(str(source.resolve()))[:16]}")
        folder.mkdir(parents=True, exist_ok=True)
        # triton reads its own version from its metadata
        for entry in [source, *packages.glob("*triton*.dist-info")]:
            link = folder / entry.name
            link.unlink(missing_ok=True)
            link.symlink_to(entry.resolve())
        return folder
    raise ToolchainError(f"{environment}: has no package triton, nor has its site-packages")


def _installed(
    folder: Path,
    requirement: str,
    text: str,
    *,
    extra_index_url: str | None = None,
) -> Path:
    """Install a requirement without its dependencies, unless it is there."""
    # complete, because it is renamed into place at the end
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as temporary:
            target = Path(temporary) / "packages"
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
            install = [*pip, "install", "--no-deps", "--target", str(target), requirement]
            # nightly builds and those of vendors have an index of their own
            if extra_index_url is not None:
                install += ["--extra-index-url", extra_index_url]
            done = subprocess.run(
                install,
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            # the end of pip's output has the reason
            if done.returncode != 0:
                errors = " ".join(line.removeprefix("ERROR: ") for line in done.stderr.splitlines())
                raise ToolchainError(
                    f"triton {text}: pip cannot install it: {errors[-_MAX_REASON:]}"
                )
            target.rename(folder)
    except OSError as error:
        raise ToolchainError(f"{folder.parent}: cannot be written: {error.strerror}") from None
    return folder
