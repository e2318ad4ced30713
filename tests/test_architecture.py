"""The import rules of docs/architecture.md, checked on the source."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import roofwatch

pytestmark = pytest.mark.xdist_group("architecture")  # one of pytest's workers reads all the source
PACKAGE = Path(roofwatch.__file__).parent
USER_FILES = PACKAGE / "demo" / "repository"
FOLDERS = ("kernels", "collector", "db", "ci", "api", "dashboard")
COMPONENTS = ("model", *FOLDERS)

ALLOWED = {
    "model": {"model"},
    "kernels": {"kernels", "roofwatch"},
    "collector": {"collector", "model", "roofwatch"},
    "db": {"db", "collector", "model"},
    "ci": {"ci", "db", "collector", "model"},
    "api": {"api", "ci", "db", "collector", "model"},
    "dashboard": {"dashboard", "ci", "db", "collector", "model", "roofwatch"},
}
DATABASE = {"sqlalchemy", "psycopg", "alembic"}
DEVICE = {"torch", "triton", "pynvml"}
CI_EDGES = {
    "roofwatch.ci.alerts.channels",
    "roofwatch.ci.alerts.evaluation",
    "roofwatch.ci.forges.client",
    "roofwatch.ci.forges.rest",
    "roofwatch.ci.forges.gitlab",
    "roofwatch.ci.history.analyse",
}
"""The modules of `ci/` that read the database or talk to a service; all others take values and
return values.
"""
MAIN_PROCESS = (
    "roofwatch.collector.runs.measure",
    "roofwatch.cli.main",
    "roofwatch.measurement.check",
)
INJECTED = tuple(
    f"roofwatch.collector.profiling.inject.{file.stem}"
    for file in sorted((PACKAGE / "collector" / "profiling" / "inject").glob("[!_]*.py"))
)
"""Loaded by file into whatever program `roofwatch profile` runs."""
CORE = {"orjson", "pydantic", "rich", "typer"}
"""What `pip install roofwatch` brings, by import name."""


@dataclass(frozen=True)
class Import:
    module: str
    name: str | None
    """What is taken from the module; None for `import module`."""
    is_at_load: bool
    """Runs when the importing module is loaded."""


@cache
def modules() -> Mapping[str, Path]:
    """Every module of ours by its dotted name."""
    roots = [PACKAGE, *(PACKAGE / folder for folder in FOLDERS)]
    files = {
        file for root in roots for file in root.rglob("*.py") if not file.is_relative_to(USER_FILES)
    }
    return {_name_of(file): file for file in sorted(files)}


def _name_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _walk(node: ast.AST, is_at_load: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, is_at_load
        else:
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            yield from _walk(child, is_at_load and not is_function and not is_for_types)


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """All imports of a module, in functions and for type checking too."""
    known = modules()
    found = []
    for statement, is_at_load in _walk(ast.parse(known[module].read_text()), is_at_load=True):
        if isinstance(statement, ast.Import):
            found += [Import(alias.name, None, is_at_load) for alias in statement.names]
            continue
        assert statement.level == 0, f"{module}: use absolute imports"
        source = str(statement.module)
        for alias in statement.names:
            submodule = f"{source}.{alias.name}"
            found.append(
                Import(submodule, None, is_at_load)
                if submodule in known
                else Import(source, alias.name, is_at_load)
            )
    return tuple(found)


def folder_of(module: str) -> str:
    """`collector` of `roofwatch.collector.runs.measure`; `roofwatch` of what lies in `roofwatch/` itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in COMPONENTS else parts[0]


def ours_in(module: str) -> set[str]:
    return {
        found.module for found in imports_of(module) if found.module.split(".")[0] == "roofwatch"
    }


def in_folder(folder: str) -> list[str]:
    return sorted(name for name in modules() if folder_of(name) == folder)


def reached_from(module: str) -> set[str]:
    """What loading a module loads: modules of ours by their names, all others by the first part of
    theirs.
    """
    known = modules()
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        for found in imports_of(name):
            if not found.is_at_load:
                continue
            if found.module in known:
                parts = found.module.split(".")  # the packages around a module are loaded first
                waiting += [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
            else:
                reached.add(found.module.split(".")[0])
    return reached


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_from_those_before_it(folder: str) -> None:
    wrong = {
        (module, found)
        for module in in_folder(folder)
        for found in ours_in(module)
        if folder_of(found) not in ALLOWED[folder]
    }

    assert wrong == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: ours_in(module) & modules().keys() - {module} for module in modules()}

    order = tuple(TopologicalSorter(graph).static_order())  # raises CycleError with the circle
    assert set(order) == graph.keys()


def subfolder_of(module: str) -> str:
    """`roofwatch.db.engine` of `roofwatch.db.engine.session` and of its own package."""
    is_package = modules()[module].name == "__init__.py"
    return module if is_package else module.rpartition(".")[0]


def test_no_two_folders_import_each_other() -> None:
    edges = set()
    # `python -m roofwatch` starts the command line, which is above everything
    for module in modules().keys() - {"roofwatch.__main__"}:
        for target in ours_in(module) & modules().keys():
            edges.add((subfolder_of(module), subfolder_of(target)))
    mutual = {
        frozenset({source, target})
        for source, target in edges
        if source != target and (target, source) in edges
    }

    assert mutual == set()


def test_kernels_import_only_public_names_of_roofwatch() -> None:
    used = [
        (module, found)
        for module in in_folder("kernels")
        for found in imports_of(module)
        if folder_of(found.module) == "roofwatch" and found.module.startswith("roofwatch")
    ]

    assert used
    assert [
        use for use in used if use[1].module != "roofwatch" or use[1].name not in roofwatch.__all__
    ] == []


def test_the_collector_imports_only_kernel_declarations_from_roofwatch() -> None:
    seen = {
        found
        for module in in_folder("collector")
        for found in ours_in(module)
        if folder_of(found) == "roofwatch"
    }
    declarations = {"roofwatch", "roofwatch.cuda", "roofwatch.install"}

    assert {name for name in seen if not name.startswith("roofwatch.spec")} <= declarations


def test_kernel_declarations_import_nothing_else_of_the_project() -> None:
    parts = {name for name in modules() if name.startswith("roofwatch.spec")}

    assert set().union(*(ours_in(part) for part in parts)) <= parts
    assert {name for name in reached_from("roofwatch") if name.startswith("roofwatch")} == {
        "roofwatch"
    }


@pytest.mark.parametrize("module", [name for name in in_folder("ci") if name not in CI_EDGES])
def test_analysis_modules_do_no_input_or_output(module: str) -> None:
    own = {
        found.module.split(".")[0] for found in imports_of(module) if found.module != "urllib.parse"
    }

    assert not own & {"os", "pathlib", "random", "socket", "subprocess", "time", "urllib"}
    assert not reached_from(module) & {*DATABASE, "gitlab", "httpx"}


@pytest.mark.parametrize(
    "module", [name for name in modules() if name.startswith("roofwatch.dashboard.charts")]
)
def test_charts_import_neither_streamlit_nor_the_database(module: str) -> None:
    assert not reached_from(module) & {*DATABASE, "streamlit"}


def test_the_dashboard_reads_the_database_in_one_place() -> None:
    readers = {
        module
        for module in in_folder("dashboard")
        if {found.module.split(".")[0] for found in imports_of(module)} & DATABASE
    }

    assert readers <= {"roofwatch.dashboard.data"}


@pytest.mark.parametrize("module", MAIN_PROCESS)
def test_the_main_process_of_a_run_does_not_load_torch(module: str) -> None:
    assert not reached_from(module) & DEVICE


@pytest.mark.parametrize("module", INJECTED)
def test_injected_modules_import_only_the_standard_library(module: str) -> None:
    others = {name for name in reached_from(module) if not name.startswith("roofwatch")}

    assert others <= sys.stdlib_module_names


def test_the_core_dependencies_are_those_that_pyproject_declares() -> None:
    declared = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"][
        "dependencies"
    ]
    providers = packages_distributions()

    assert {name.split(">")[0] for name in declared} == {providers[name][0] for name in CORE}


def test_tests_do_not_import_developer_tools() -> None:
    folder = PACKAGE.parent / "tests"
    wrong = [
        (file.name, statement.lineno)
        for file in folder.rglob("*.py")
        for statement, _ in _walk(ast.parse(file.read_text()), is_at_load=True)
        if "bench" in ast.unparse(statement).split()[1].split(".")[:1]
    ]

    assert wrong == []
