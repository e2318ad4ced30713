"""What a tree requires: its requirement files, lock files and the dependencies of its
distributions.
"""

import configparser
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from roofwatch.collector.build.distributions import is_vendored, normalised
from roofwatch.collector.build.toml_file import read_toml, table, texts

LOCKS = frozenset({"pdm.lock", "poetry.lock", "pylock.toml", "uv.lock"})
_MAX_PACKAGES = 2_000
_MAX_TEXT = 200
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*([^;#]*)")


def read_requirements(tree: Path, files: Sequence[str]) -> dict[str, str]:
    """Read which packages a tree requires, by normalised name, each with what is said of its
    version; `files` are the names of its files.
    """
    found: dict[str, set[str]] = {}
    for name in files:
        path = PurePosixPath(name)
        if is_vendored(path):
            continue
        for package, version in _requirements_in(tree / name, path):
            found.setdefault(normalised(package), set()).add(version[:_MAX_TEXT])
    listed = {name: ", ".join(sorted(filter(None, texts))) for name, texts in found.items()}
    return dict(sorted(listed.items())[:_MAX_PACKAGES])


def requirement_files(files: Iterable[str]) -> list[str]:
    """Names of the requirement files of a tree."""
    return [
        name
        for name in files
        if is_requirement_file(PurePosixPath(name)) and not is_vendored(PurePosixPath(name))
    ]


def is_requirement_file(path: PurePosixPath) -> bool:
    is_named = path.name.startswith(("requirements", "constraints"))
    return path.suffix == ".txt" and (is_named or path.parent.name == "requirements")


def _requirements_in(file: Path, path: PurePosixPath) -> Iterator[tuple[str, str]]:
    if is_requirement_file(path):
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
    for line in lines:
        matched = _REQUIREMENT.match(line.strip())
        if matched is not None:
            yield matched[1], matched[2].strip().rstrip("\\").strip()


def _locked(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for package in document.get("package", document.get("packages", ())):
        if isinstance(package, dict) and "name" in package:
            yield str(package["name"]), f"=={package.get('version', '')}"


def _of_project(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    project = table(document, "project")
    groups = [
        project.get("dependencies"),
        *table(project, "optional-dependencies").values(),
        *table(document, "dependency-groups").values(),
    ]
    for group in groups:
        yield from _parsed(texts(group))
    for name, version in table(document, "tool", "poetry", "dependencies").items():
        if name != "python":
            yield name, str(version.get("version", "") if isinstance(version, dict) else version)


def _of_setup_config(file: Path) -> Iterator[tuple[str, str]]:
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(file)
    except (configparser.Error, UnicodeDecodeError):
        return
    yield from _parsed(config.get("options", "install_requires", fallback="").splitlines())
