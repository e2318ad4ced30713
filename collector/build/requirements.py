"""What a tree requires: its requirement files, lock files and the dependencies of its
distributions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from roofwatch.collector.build.distributions import is_vendored, normalised
from roofwatch.collector.build.setup_config import read_config
from roofwatch.collector.build.toml_file import read_toml, table, texts

# The formats of PDM, Poetry, PEP 751 and uv.
LOCKS = frozenset({"pdm.lock", "poetry.lock", "pylock.toml", "uv.lock"})
_MAX_PACKAGES = 2_000
_MAX_TEXT = 200
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*([^;#]*)")
"""Name, extras that are left out, and version; a marker or a comment ends it."""
_LOGIN = re.compile(r"//[^/@\s]*@")
"""Name and password in an address."""


def read_requirements(tree: Path, files: Sequence[str]) -> dict[str, str]:
    """Read the required packages of a tree with their versions, by normalised name; `files` are
    the names of its files.
    """
    versions: dict[str, set[str]] = {}
    for name in files:
        path = PurePosixPath(name)
        # What others have copied into the tree is not installed.
        if is_vendored(path):
            continue
        for package, version in _requirements_in(tree / name, path):
            versions.setdefault(normalised(package), set()).add(version[:_MAX_TEXT])
    listed: dict[str, str] = {}
    for name, known_versions in versions.items():
        listed[name] = ", ".join(sorted(filter(None, known_versions)))
    in_order = sorted(listed.items())
    return dict(in_order[:_MAX_PACKAGES])


def declared_dependencies(folder: Path) -> list[str]:
    """Requirements of a distribution, as its configuration has them."""
    project = table(read_toml(folder / "pyproject.toml"), "project")
    listed = texts(project.get("dependencies"))
    config = read_config(folder / "setup.cfg")
    lines = config.get("options", "install_requires", fallback="").splitlines()
    listed += [line.strip() for line in lines if line.strip()]
    return listed


def locked_versions(tree: Path) -> list[str]:
    """The packages of a tree's lock files, as constraints."""
    constraints: set[str] = set()
    for lock in LOCKS:
        for name, version in _locked(read_toml(tree / lock)):
            # A package of the tree itself has no version.
            if version != "==":
                constraints.add(f"{name}{version}")
    return sorted(constraints)


def _is_requirement_file(path: PurePosixPath) -> bool:
    is_named = path.name.startswith(("requirements", "constraints"))
    return path.suffix == ".txt" and (is_named or path.parent.name == "requirements")


def _requirements_in(file: Path, path: PurePosixPath) -> Iterator[tuple[str, str]]:
    """Name and version of each package that a file lists, by the kind of the file."""
    if _is_requirement_file(path):
        yield from _parsed(_lines_of(file))
    elif path.name in LOCKS:
        yield from _locked(read_toml(file))
    elif path.name == "pyproject.toml":
        yield from _of_project(read_toml(file))
    elif path.name == "setup.cfg":
        yield from _of_setup_config(file)


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _parsed(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Name and version from lines in the format of pip."""
    for line in lines:
        matched = _REQUIREMENT.match(line.strip())
        if matched is not None:
            # A backslash continues the line, usually with hashes.
            version = matched[2].strip().rstrip("\\").strip()
            yield matched[1], _LOGIN.sub("//", version)


def _locked(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and exact version of each package of a lock file."""
    # uv, Poetry and PDM write `package`, PEP 751 `packages`.
    for package in document.get("package", document.get("packages", ())):
        # a damaged lock file is none of our business
        if isinstance(package, dict) and "name" in package:
            version = package.get("version", "")
            yield str(package["name"]), f"=={version}"


def _of_project(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and version of each dependency in `pyproject.toml`, in any of its groups."""
    project = table(document, "project")
    groups = [
        # any of them may decide a measured time
        project.get("dependencies"),
        *table(project, "optional-dependencies").values(),
        *table(document, "dependency-groups").values(),
    ]
    for group in groups:
        yield from _parsed(texts(group))
    poetry = table(document, "tool", "poetry", "dependencies")
    for name, version in poetry.items():
        # Poetry lists the interpreter among the dependencies
        if name == "python":
            continue
        # A dependency with options is a table.
        if isinstance(version, dict):
            version = version.get("version", "")
        yield name, str(version)


def _of_setup_config(file: Path) -> Iterator[tuple[str, str]]:
    config = read_config(file)
    lines = config.get("options", "install_requires", fallback="").splitlines()
    yield from _parsed(lines)
