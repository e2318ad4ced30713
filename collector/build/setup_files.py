"""Where setuptools finds a distribution's packages: `pyproject.toml`, `setup.cfg` and `setup.py`.

`setup.py` is read, not run: it may download, compile or need a GPU. If its call of `setup` cannot
be read, the distribution is built, so that setuptools itself decides.
"""

import ast
import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from roofwatch.collector.build.backends import Layout
from roofwatch.collector.build.setup_config import read_config
from roofwatch.collector.build.toml_file import table, texts

_COMPILING = ("ext_modules", "rust_extensions", "cffi_modules", "libraries", "cmake_source_dir")
"""Arguments of `setup` that add something to compile."""
_COMPILERS = frozenset({"skbuild", "torch.utils.cpp_extension", "Cython.Build", "pybind11"})
"""Modules that a `setup.py` imports to compile."""


def setuptools_layout(folder: Path, project: dict[str, Any]) -> Layout | None:
    """Merge the three files; None if none of them configures a distribution."""
    options = table(project, "tool", "setuptools")
    config = read_config(folder / "setup.cfg")
    call = _read_setup(folder)
    has_metadata = config.has_section("metadata") or config.has_section("options")
    is_declared = bool(project.get("build-system") or project.get("project"))
    if not (is_declared or has_metadata or call):
        return None
    # what is compiled or generated is missing in a checkout
    is_built = bool(options.get("ext-modules")) or _writes_version(project)
    if call is not None:
        is_built = is_built or call.compiles or not call.is_readable
    package_dir = _package_dir(options, config, call)
    # The empty name is the folder of all packages that are not named.
    top = package_dir.pop("", None)
    if top is not None:
        roots = [folder / top]
    else:
        roots = [folder / path for path in _searched_folders(options, config)]
    # a package may lie anywhere, as long as the folder has its name
    for name, path in package_dir.items():
        root = _root_of_package(name, path)
        if root is None:
            # only a build gives the package its name
            is_built = True
        else:
            roots.append(folder / root)
    if not roots:
        # The folder itself; automatic discovery takes `src` if there is one.
        roots = [folder / "src", folder]
    return Layout(tuple(roots), is_built)


def _package_dir(
    options: dict[str, Any],
    config: configparser.ConfigParser,
    call: "_SetupCall | None",
) -> dict[str, str]:
    """Folder by package, from all three files; what is declared in a later file wins."""
    package_dir = _config_package_dir(config)
    if call is not None:
        package_dir |= call.package_dir
    for name, path in table(options, "package-dir").items():
        package_dir[str(name)] = str(path)
    return package_dir


def _root_of_package(name: str, path: str) -> PurePosixPath | None:
    """The folder from which a package is imported; None if its own folder has another name."""
    name_parts = tuple(name.split("."))
    path_parts = PurePosixPath(path).parts
    # `a.b` in `lib/a/b` is imported from `lib`; in `lib/code` from nowhere
    if path_parts[-len(name_parts) :] != name_parts:
        return None
    return PurePosixPath(*path_parts[: -len(name_parts)])


def _searched_folders(options: dict[str, Any], config: configparser.ConfigParser) -> list[str]:
    searched = texts(table(options, "packages", "find").get("where"))
    searched += _lines(config.get("options.packages.find", "where", fallback=""))
    return searched


def setuptools_name(folder: Path) -> str | None:
    """The distribution's name in `setup.cfg` or `setup.py`; None if neither says it."""
    config = read_config(folder / "setup.cfg")
    name = config.get("metadata", "name", fallback="")
    if name:
        return name
    call = _read_setup(folder)
    if call is None:
        return None
    return call.name


def _writes_version(project: dict[str, Any]) -> bool:
    """Whether building writes a module with the version, which a checkout lacks."""
    scm = table(project, "tool", "setuptools_scm")
    return bool({"version_file", "write_to"} & scm.keys())


def _config_package_dir(config: configparser.ConfigParser) -> dict[str, str]:
    """`package_dir` of `setup.cfg`: a line for each package, `=` between its name and folder."""
    lines = _lines(config.get("options", "package_dir", fallback=""))
    folders: dict[str, str] = {}
    for line in lines:
        name, _, path = line.partition("=")
        folders[name.strip()] = path.strip()
    return folders


def _lines(text: str) -> list[str]:
    # Both a comma and a line break separate entries.
    lines = text.replace(",", "\n").splitlines()
    return [line.strip() for line in lines if line.strip()]


# --- setup.py


@dataclass
class _SetupCall:
    """The arguments of the call of `setup`, as far as they can be read."""

    arguments: dict[str, Any] = field(default_factory=dict)
    is_readable: bool = True
    imports_compiler: bool = False

    @property
    def name(self) -> str | None:
        name = self.arguments.get("name")
        # an unreadable name is none
        if isinstance(name, str):
            return name
        return None

    @property
    def package_dir(self) -> dict[str, str]:
        folders = self.arguments.get("package_dir")
        if isinstance(folders, dict):
            return folders
        return {}

    @property
    def compiles(self) -> bool:
        values = [self.arguments.get(name) for name in _COMPILING]
        return any(value not in (None, [], {}, ()) for value in values)


class _UnreadableError(Exception):
    """An expression whose value depends on running the file."""


def _read_setup(folder: Path) -> _SetupCall | None:
    """Read `setup.py`; None if there is none."""
    try:
        tree = ast.parse((folder / "setup.py").read_bytes())
    except OSError:
        return None
    # written for Python 2, or not text
    except (SyntaxError, ValueError):
        return _SetupCall(is_readable=False)
    names = _assignments(tree)
    calls = [node for node in ast.walk(tree) if _is_call(node, "setup")]
    # Several calls are alternatives, and only running the file chooses one.
    if len(calls) != 1 or not isinstance(calls[0], ast.Call):
        return _SetupCall(is_readable=False)
    call = _SetupCall(imports_compiler=bool(_COMPILERS & _imports(tree)))
    for keyword in calls[0].keywords:
        _read_argument(call, keyword, names)
    # It compiles, even if the call takes its extensions from a function.
    if call.imports_compiler:
        call.arguments.setdefault("ext_modules", _Unknown)
    return call


class _Unknown:
    """Value of an argument that cannot be read."""


def _read_argument(call: _SetupCall, keyword: ast.keyword, names: Mapping[str, ast.expr]) -> None:
    """Add one argument of the call of `setup`, as far as it can be read."""
    try:
        value = _evaluate(keyword.value, names)
    except _UnreadableError:
        # A package directory that cannot be read may hide any package.
        if keyword.arg is None or keyword.arg == "package_dir":
            call.is_readable = False
        else:
            call.arguments[keyword.arg] = _Unknown
        return
    if keyword.arg is not None:
        call.arguments[keyword.arg] = value
    # `setup(**options)`
    elif isinstance(value, dict):
        call.arguments |= value


def _assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Values of names that are assigned once."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        for target in targets:
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and value is not None:
                values.setdefault(target.id, []).append(value)
    changed = _names_with_method_calls(tree)
    once: dict[str, ast.expr] = {}
    for name, expressions in values.items():
        # A list that a method may change has another value in the end.
        if len(expressions) == 1 and name not in changed:
            once[name] = expressions[0]
    return once


def _names_with_method_calls(tree: ast.Module) -> set[str]:
    """`extensions` of `extensions.append(...)`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if isinstance(node.func.value, ast.Name):
            names.add(node.func.value.id)
    return names


def _evaluate(node: ast.expr, names: Mapping[str, ast.expr]) -> Any:
    """Value of a literal, of a name assigned once, or of a path that is joined."""
    if isinstance(node, ast.Name) and node.id in names:
        # Without itself, so that a value that refers to its own name ends.
        rest = {name: value for name, value in names.items() if name != node.id}
        return _evaluate(names[node.id], rest)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_evaluate(key, names) for key in node.keys if key is not None]
        values = [_evaluate(value, names) for value in node.values]
        return dict(zip(keys, values, strict=True))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.path.join":
        parts = [str(_evaluate(part, names)) for part in node.args]
        return "/".join(parts)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _UnreadableError from None


def _is_call(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = ast.unparse(node.func)
    return function.rpartition(".")[2] == name


def _imports(tree: ast.Module) -> set[str]:
    """Names of the imported modules."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module))
    return modules
