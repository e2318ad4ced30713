"""The direction of imports, read from the source: docs/architecture.md has the rules in words.

What is imported anywhere in a file counts for the direction, in functions and for type checking too. What a module
*reaches* is what importing it loads: through any number of imports that run when a module is loaded.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import roofwatch

pytestmark = pytest.mark.xdist_group("architecture")  # one of pytest's workers reads all the source
ROOT = Path(__file__).parents[1]
PACKAGES = ("kernels", "collector", "db", "ci", "api", "dashboard", "roofwatch")
A_USER_S_FILE = ROOT / "roofwatch" / "demo" / "repository" / "bench_layers.py"

SPEC_PARTS = {f"roofwatch.spec.{file.stem}" for file in (ROOT / "roofwatch" / "spec").glob("[!_]*.py")}
SPEC = {"roofwatch", "roofwatch.spec"} | SPEC_PARTS
PUBLIC = SPEC | {"roofwatch.cuda"}
RECORD_PARTS = {
    *(
        "roofwatch.collector.record.record",
        "roofwatch.collector.record.case_profile",
        "roofwatch.collector.record.case_record",
        "roofwatch.collector.record.device_state",
    ),
    "roofwatch.collector.record.machine",
    *(
        "roofwatch.collector.record.measurement",
        "roofwatch.collector.record.part",
        "roofwatch.collector.record.results",
        "roofwatch.collector.record.artefact",
    ),
    *("roofwatch.collector.record.skipped_kernel", "roofwatch.collector.record.source_line"),
}
RECORD = RECORD_PARTS | {"roofwatch.collector.record.metrics", "roofwatch.collector.errors"}
ROOFS = {"roofwatch.collector.device.roofline", "roofwatch.collector.device.datasheets"}
"""Pure: the ceilings of a device, measured and published, and where a case stands under them."""
CORE_DEPENDENCIES = {"orjson", "pydantic", "pynvml", "rich", "torch", "triton", "typer"}
"""What pyproject.toml's `dependencies` are imported as."""
ALERTING = {"roofwatch.ci.alerts.looking", "roofwatch.ci.alerts.delivery"}
"""Alerts' edge to the database."""
ALERT_CHANNELS = {
    "roofwatch.ci.alerts.channels",
    "roofwatch.ci.alerts.mail",
    "roofwatch.ci.alerts.webhook",
    "roofwatch.ci.github.issues",
}
"""Their edge to whoever is told."""
EDGES = (
    ALERTING
    | ALERT_CHANNELS
    | {"roofwatch.ci.history.analyse", "roofwatch.ci.github.client", "roofwatch.ci.github.requests"}
)
"""Of judgement: to the database, and to GitHub."""
VERDICTS = {
    "roofwatch.ci.ab.compare",
    "roofwatch.ci.changepoint.detect",
    "roofwatch.ci.gate",
    "roofwatch.ci.history.screen",
    "roofwatch.ci.history.time_steps",
}
"""What makes verdicts of measurements: the dashboard shows those that were made, and gathers by other pure modules."""
OF_AN_EXTRA = {"cupti", "ncu_report", "ray"}
"""Imported where it is used, and asked for there if it is absent."""


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
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py") if file != A_USER_S_FILE]
    return {_name_of(file): file for file in files}


def _name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_for_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _walk(node: ast.AST, is_at_load: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, is_at_load
        else:
            is_deferred = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _walk(child, is_at_load and not is_deferred and not _is_for_type_checking(child))


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """All imports of a module; `from package import module` is an import of that module."""
    known = modules()
    found = []
    for statement, is_at_load in _walk(ast.parse(known[module].read_text()), is_at_load=True):
        if isinstance(statement, ast.Import):
            found += [Import(alias.name, None, is_at_load) for alias in statement.names]
            continue
        assert statement.level == 0, f"{module}: imports are absolute here"
        source = str(statement.module)
        for alias in statement.names:
            submodule = f"{source}.{alias.name}"
            found.append(
                Import(submodule, None, is_at_load) if submodule in known else Import(source, alias.name, is_at_load)
            )
    return tuple(found)


def ours_in(module: str) -> set[str]:
    return {found.module for found in imports_of(module) if found.module.split(".")[0] in PACKAGES}


@cache
def reached_from(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """What loading a module loads: modules of ours, and the top names of all others."""
    known = modules()
    ours: set[str] = set()
    others: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in ours:
            continue
        ours.add(name)
        for found in imports_of(name):
            if not found.is_at_load:
                continue
            if found.module in known:
                # loading a module loads the packages around it first
                parts = found.module.split(".")
                waiting += [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
            else:
                others.add(found.module.split(".")[0])
    return frozenset(ours & known.keys()), frozenset(others)


def in_package(package: str) -> list[str]:
    return sorted(name for name in modules() if name.split(".")[0] == package)


ALLOWED = {
    "kernels": {"kernels", "roofwatch"},
    "collector": {"collector", "roofwatch"},
    "db": {"db", "collector"},
    "ci": {"ci", "db", "collector"},
    "api": {"api", "ci", "db", "collector"},
    "dashboard": {"dashboard", "ci", "db", "collector", "roofwatch"},
}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_from_those_above_it(package: str) -> None:
    wrong = {
        (module, found)
        for module in in_package(package)
        for found in ours_in(module)
        if found.split(".")[0] not in ALLOWED[package]
    }

    assert wrong == set()


def test_the_spec_imports_nothing_of_ours() -> None:
    assert ours_in("roofwatch.spec") == SPEC_PARTS
    assert set().union(*(ours_in(part) for part in SPEC_PARTS)) <= SPEC_PARTS
    assert ours_in("roofwatch.cuda") == {"roofwatch.spec"}
    assert ours_in("roofwatch") == {"roofwatch.spec", "roofwatch.cuda"}
    assert reached_from("roofwatch")[0] == {"roofwatch"}, "its names are loaded when they are asked for"


def test_kernels_use_the_public_names_of_roofwatch_alone() -> None:
    used = [
        (module, found)
        for module in in_package("kernels")
        for found in imports_of(module)
        if found.module.split(".")[0] == "roofwatch"
    ]

    assert used
    assert [use for use in used if use[1].module != "roofwatch" or use[1].name not in roofwatch.__all__] == []


def test_the_collector_sees_of_roofwatch_what_suites_use_and_the_version() -> None:
    used = {
        (found.module, found.name)
        for module in in_package("collector")
        for found in imports_of(module)
        if found.module.split(".")[0] == "roofwatch"
    }

    assert {use for use in used if use[0] not in PUBLIC - {"roofwatch"}} == {("roofwatch", "__version__")}


def test_the_store_sees_of_the_collector_the_record_the_metrics_and_the_errors() -> None:
    seen = {found for module in in_package("db") for found in ours_in(module) if found.startswith("collector")}

    assert seen <= RECORD


def test_judgement_sees_of_the_collector_the_record_the_metrics_and_the_roofs_and_of_the_store_its_values() -> None:
    for module in in_package("ci"):
        seen = {found for found in ours_in(module) if not found.startswith("ci")}
        if module not in EDGES:
            assert seen <= RECORD | ROOFS | {
                "roofwatch.db.values",
                "roofwatch.db.queries.columns",
                "roofwatch.db.queries.counted_values",
                "roofwatch.db.queries.run_values",
                "roofwatch.db.queries.run_results_values",
                "roofwatch.db.queries.profiled_values",
                "roofwatch.db.auth.values",
                "roofwatch.db.alerts.values",
                "roofwatch.db.bisections.values",
                "roofwatch.db.errors",
            }, module


@pytest.mark.parametrize("module", [name for name in in_package("ci") if name not in EDGES])
def test_judgement_is_pure_but_for_its_edge(module: str) -> None:
    own = {found.module.split(".")[0] for found in imports_of(module) if found.module != "urllib.parse"}

    assert not own & {"os", "pathlib", "random", "socket", "subprocess", "time", "urllib"}
    assert not reached_from(module)[1] & {"sqlalchemy", "psycopg", "alembic", "githubkit", "httpx"}


def test_what_tells_github_knows_nothing_of_the_database() -> None:
    own = {"roofwatch.ci.github.client", "roofwatch.ci.github.requests"}
    for module in own:
        assert ours_in(module) - own <= {name for name in in_package("ci") if name not in EDGES} | RECORD_PARTS
    assert not reached_from("roofwatch.ci.github.client")[1] & {"sqlalchemy", "psycopg", "alembic"}


@pytest.mark.parametrize("module", sorted(ALERT_CHANNELS))
def test_what_tells_people_knows_nothing_of_the_database(module: str) -> None:
    assert not reached_from(module)[1] & {"sqlalchemy", "psycopg", "alembic"}


@pytest.mark.parametrize(
    "module",
    [
        *(name for name in in_package("dashboard") if name.startswith("roofwatch.dashboard.charts.")),
        *(
            "roofwatch.dashboard.comparison",
            "roofwatch.dashboard.filters",
            "roofwatch.dashboard.access.rights",
            "roofwatch.dashboard.triaged",
            "roofwatch.dashboard.wording",
        ),
        *(
            "roofwatch.dashboard.tables.kernel",
            "roofwatch.dashboard.tables.run",
            "roofwatch.dashboard.tables.code",
            "roofwatch.dashboard.source_links",
            "roofwatch.dashboard.spending",
            "roofwatch.dashboard.profile_trace",
        ),
    ],
)
def test_figures_and_comparisons_know_neither_streamlit_nor_the_database(module: str) -> None:
    assert not reached_from(module)[1] & {"sqlalchemy", "psycopg", "streamlit"}


def test_the_api_sees_of_the_collector_the_record_and_the_errors_and_only_the_command_line_sees_the_api() -> None:
    seen = {found for module in in_package("api") for found in ours_in(module) if found.startswith("collector")}
    users = {module for module in modules() if any(found.split(".")[0] == "api" for found in ours_in(module))}

    assert seen == {"roofwatch.collector.record.record", "roofwatch.collector.errors"}
    assert {user.split(".")[0] for user in users} == {"api", "roofwatch"}


def test_the_dashboard_reads_the_database_in_one_place() -> None:
    readers = {
        module
        for module in in_package("dashboard")
        if {found.module.split(".")[0] for found in imports_of(module)} & {"sqlalchemy", "psycopg"}
    }

    assert readers == {"roofwatch.dashboard.data"}


def test_the_dashboard_computes_no_verdict() -> None:
    seen = {found for module in in_package("dashboard") for found in ours_in(module) if found.startswith("ci")}

    assert not seen & (EDGES | VERDICTS)


MAIN_PROCESS = [
    "roofwatch.collector.run",
    "roofwatch.collector.accuracy.check_run",
    "roofwatch.collector.compile.static_run",
    "roofwatch.collector.compile.virtual_environment",
    "roofwatch.collector.profiling.detect_format",
    "roofwatch.collector.profiling.time_spent",
    "roofwatch.collector.profiling.profile_run",
    "roofwatch.collector.outbox.redacted_file",
    "roofwatch.collector.compile.occupancy",
    "roofwatch.collector.compile.instructions",
    "roofwatch.collector.workers.worker",
    "roofwatch.collector.cluster.spread",
    "roofwatch.collector.git",
    "roofwatch.collector.device.roofline",
    "roofwatch.collector.outbox.journal_header",
    "roofwatch.collector.outbox.upload",
    "roofwatch.collector.profiling.ncu.counting",
]
WORKER_PROCESS = "roofwatch.collector.workers.fork_server_main"
IN_ANY_PROGRAM = {
    "roofwatch.collector.profiling.inject",
    "roofwatch.collector.profiling.inject.roofwatch_recorder",
    "roofwatch.collector.profiling.inject.sitecustomize",
}
"""Loaded by file into whatever `roofwatch profile` runs."""
USER_PROCESSES = ["roofwatch.collector.profiling.ncu.target", "roofwatch.collector.compile.capture_main"]
"""What runs beside a user's own program."""


@pytest.mark.parametrize("module", MAIN_PROCESS)
def test_the_process_that_plans_a_run_never_loads_what_a_kernel_could_break(module: str) -> None:
    assert not reached_from(module)[1] & {"torch", "triton", "pynvml"}


def test_every_module_of_the_collector_is_in_one_of_its_two_processes() -> None:
    main = set().union(*(reached_from(module)[0] for module in MAIN_PROCESS))
    others = set().union(*(reached_from(module)[0] for module in [WORKER_PROCESS, *USER_PROCESSES]))
    in_functions = {"roofwatch.collector.compile.signature_suite", "roofwatch.collector.accuracy.interpreter"}

    assert set(in_package("collector")) <= main | others | in_functions | IN_ANY_PROGRAM


@pytest.mark.parametrize("module", sorted(IN_ANY_PROGRAM))
def test_what_is_put_into_a_profiled_program_loads_nothing_but_the_standard_library(module: str) -> None:
    ours, others = reached_from(module)

    assert ours <= {"collector", *IN_ANY_PROGRAM}
    assert others <= sys.stdlib_module_names


def test_a_worker_reaches_nothing_of_ours_that_a_user_s_repository_may_have_too() -> None:
    ours, _ = reached_from(WORKER_PROCESS)

    assert {name.split(".")[0] for name in ours} == {"collector", "roofwatch"}
    assert {name for name in ours if name.startswith("roofwatch")} == PUBLIC


def test_the_core_dependencies_are_those_that_pyproject_declares() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    providers = packages_distributions()

    assert {name.split(">")[0] for name in declared} == {providers[name][0] for name in CORE_DEPENDENCIES}


@pytest.mark.parametrize("module", [*in_package("kernels"), *in_package("collector"), *sorted(PUBLIC)])
def test_what_measures_needs_the_core_installation_alone(module: str) -> None:
    tops = {
        found.module.split(".")[0]
        for found in imports_of(module)
        if found.is_at_load or found.module not in OF_AN_EXTRA
    } - set(PACKAGES)

    assert tops - sys.stdlib_module_names <= CORE_DEPENDENCIES


def test_the_command_line_loads_next_to_nothing_before_a_command_is_called() -> None:
    ours, others = reached_from("roofwatch.cli.main")

    commands = {name for name in modules() if name.startswith("roofwatch.cli")}
    assert ours <= {"roofwatch", "roofwatch.cli.main", "roofwatch.options"} | commands
    assert others - sys.stdlib_module_names == {"typer"}


def test_tests_for_a_gpu_load_what_a_machine_that_only_measures_has() -> None:
    needing = [
        file
        for file in (ROOT / "tests").rglob("test_*.py")
        if "mark.gpu" in (text := file.read_text()) or "device: str" in text
    ]
    loaded = {
        (file.name, name.split(".")[0])
        for file in [*needing, ROOT / "tests" / "conftest.py", ROOT / "tests" / "kernels" / "conftest.py"]
        for statement, is_at_load in _walk(ast.parse(file.read_text()), is_at_load=True)
        if is_at_load
        for name in (
            [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else [str(statement.module)]
        )
    }

    assert len(needing) > 20
    allowed = CORE_DEPENDENCIES | {"collector", "kernels", "roofwatch", "tests", "pytest"} | sys.stdlib_module_names
    assert {use for use in loaded if use[1] not in allowed} == set()
