"""The pytest plugin: a fixture that checks and measures a function, and fails a test on a confirmed
regression.

It imports only pytest until a test uses the fixture. Workers that measure run the test once more to
make its inputs, at the base in a checkout of its own, so a test may be parametrised and use other
fixtures.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from roofwatch.model.optional import map_optional
from roofwatch.testing.collection import (
    NO_DRIVER,
    NO_TIME,
    WAY_OUT,
    pytest_make_collect_report,
)

__all__ = ["pytest_make_collect_report", "roofwatch", "specs_of"]

if TYPE_CHECKING:
    from roofwatch.collector.suite import SuiteAt
    from roofwatch.model.record import RunRecord
    from roofwatch.spec import Case, InputMaker, KernelSpec

_BUDGET_S = 20.0
"""Time for more blocks of the calls of one test, after the first interim analysis."""
_PARTS = "roofwatch_parts"
"""Where a worker of pytest-xdist finds the folder of records."""
_IMPLEMENTATION = "function"


@dataclass
class _Session:
    parts: Path | None = None
    """Folder with the record of each measured test; None if nothing is measured."""
    is_capturing: bool = False
    """This is a worker's run of a test, for its inputs alone."""
    calls: dict[str, list[KernelSpec]] = field(default_factory=dict)
    """By node ID of the test."""
    device: str = "cpu"


_SESSION = pytest.StashKey[_Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("roofwatch")
    group.addoption(
        "--roofwatch-record",
        metavar="FILE",
        help="Measure the fixture's calls into a record.",
    )
    group.addoption(
        "--roofwatch-against",
        metavar="REV",
        help="Fail tests with calls slower than at a revision.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "roofwatch_tolerance(elementwise, rmse_ratio): allowed errors of the roofwatch fixture's "
        "calls",
    )
    session = config.stash.setdefault(_SESSION, _Session())
    # The session that runs a test for its inputs measures nothing.
    if session.is_capturing:
        return
    if hasattr(config, "workerinput"):
        folder_text = config.workerinput.get(_PARTS)
        session.parts = map_optional(Path, folder_text)
    elif config.getoption("--roofwatch-record") or config.getoption("--roofwatch-against"):
        folder = tempfile.TemporaryDirectory(prefix="roofwatch-pytest-")
        config.add_cleanup(folder.cleanup)
        session.parts = Path(folder.name)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where records go."""
    parts = node.config.stash[_SESSION].parts
    node.workerinput[_PARTS] = map_optional(str, parts)


@pytest.fixture
def roofwatch(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Check a function against a reference, measure it if an option asks for it, and return its
    result.

    Call it as `roofwatch(function, *arguments, reference=..., grad=True)`. The reference is called
    with float64 tensors. With `grad`, gradients of the floating-point arguments are checked and the
    backward pass measured too. With TRITON_INTERPRET=1, accesses out of bounds and races are
    errors.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        from roofwatch.collector.accuracy.corrected_interpreter import correct_interpreter

        correct_interpreter()
    session = request.config.stash[_SESSION]
    marker = request.node.get_closest_marker("roofwatch_tolerance")

    def call(
        function: Callable[..., Any],
        *arguments: Any,
        reference: Callable[..., Any],
        grad: bool = True,
    ) -> Any:
        specs = session.calls.setdefault(request.node.nodeid, [])
        tolerance = {} if marker is None else dict(marker.kwargs)
        spec, session.device = _spec(
            node_id=request.node.nodeid,
            position=len(specs),
            function=function,
            arguments=arguments,
            reference=reference,
            grad=grad,
            tolerance=tolerance,
        )
        specs.append(spec)
        try:
            return function(*arguments)
        except RuntimeError as error:
            if NO_DRIVER in str(error):
                # a worker that measures uses no interpreter
                pytest.fail(NO_TIME if session.is_capturing else WAY_OUT, pytrace=False)
            raise

    return call


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Check and measure the calls of a test that passed."""
    yield
    session = item.config.stash[_SESSION]
    specs = session.calls.get(item.nodeid, [])
    if not specs or session.is_capturing:
        return
    # Correctness first: a wrong result has no time.
    failure = _check(specs, session.device) or (session.parts and _measure(item, session))
    session.calls.pop(item.nodeid)
    if failure:
        pytest.fail(failure, pytrace=False)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the times, and write the record."""
    parts = config.stash[_SESSION].parts
    if parts is None:
        return
    files = sorted(parts.glob("*.json"))
    if not files:
        terminalreporter.write_line(
            "roofwatch: nothing was measured: no test that passed called the fixture `roofwatch`"
        )
        return
    from roofwatch.collector.runs.cluster import join
    from roofwatch.model.metrics import format_ns
    from roofwatch.model.record import RunRecord

    records = [RunRecord.read(file) for file in files]
    terminalreporter.section("roofwatch")
    for record in records:
        for measured in record.measurements:
            time = map_optional(format_ns, measured.median_ns) or measured.outcome
            terminalreporter.write_line(f"{time:>12}  {measured.case_id}")
    target = config.getoption("--roofwatch-record")
    if target:
        for number, record in enumerate(join(records, records[0].run_id), start=1):
            path = Path(target)
            if number > 1:
                path = path.with_name(f"{number}-{path.name}")
            record.write(path)
            terminalreporter.write_line(f"written: {path}")


# --- calls as kernels


def _spec(
    node_id: str,
    position: int,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    reference: Callable[..., Any],
    grad: bool,
    tolerance: Mapping[str, float],
) -> tuple[KernelSpec, str]:
    """A call as a kernel with one case, and the kind of its device. Copies the arguments."""
    import torch

    from roofwatch.spec import KernelSpec, SpecError, Tolerance, cases

    names = [f"argument{number}" for number in range(len(arguments))]
    inputs = dict(zip(names, map(_copied, arguments), strict=True))
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    floating = [name for name, value in tensors.items() if value.is_floating_point()]
    if not floating:
        raise SpecError("roofwatch(...): no argument is a floating-point tensor")
    # A name that `-k` and file names accept.
    test_path, _, parameters = node_id.partition("[")
    name = ".".join(re.findall(r"[A-Za-z_0-9]+", test_path.replace(".py", "")))
    if position:
        name += f".{position + 1}"
    # The sizes are those of the arguments, as a case's shape says.
    shape = {key: "x".join(map(str, value.shape)) or "scalar" for key, value in tensors.items()}
    if parameters:
        shape["parameters"] = re.sub(r"[^\w.-]", "_", parameters[:-1], flags=re.ASCII)
    dtype = str(inputs[floating[0]].dtype).removeprefix("torch.")
    gradient_names = tuple(key for key in floating if arguments[names.index(key)].requires_grad)
    directions = ["fwd", "bwd"] if grad else ["fwd"]

    def copy_inputs(case: Case, make: InputMaker) -> dict[str, Any]:  # noqa: ARG001
        # a function may write into its arguments
        return {key: _copied(value) for key, value in inputs.items()}

    spec = KernelSpec(
        name=name,
        inputs=copy_inputs,
        reference=lambda **values: reference(*values.values()),
        cases=cases(shapes=[shape], dtypes=[dtype], directions=directions),
        flop_count=lambda case: 0.0,  # noqa: ARG005
        memory_bytes=lambda case: 0.0,  # noqa: ARG005
        gradients=gradient_names or None,
        tolerances={dtype: Tolerance(**tolerance)} if tolerance else {},
    )
    spec.implementation("torch", name=_IMPLEMENTATION)(lambda **values: function(*values.values()))
    return spec, tensors[floating[0]].device.type


def _copied(value: Any) -> Any:
    if not hasattr(value, "detach"):
        return value
    return value.detach().clone()


def specs_of(node_id: str, root: str) -> dict[str, KernelSpec]:
    """The calls of a test as kernels by name; runs the test once, in this process, in the root of
    the session.
    """

    class Capture:
        session = _Session(is_capturing=True)
        failures: ClassVar[list[str]] = []

        def pytest_configure(self, config: pytest.Config) -> None:
            config.stash[_SESSION] = self.session

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                self.failures.append(report.longreprtext)

    options = [
        "-p",
        "roofwatch.testing.plugin",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "--rootdir",
        root,
    ]
    os.environ.pop("PYTEST_ADDOPTS", None)  # options of the session that measures, such as -n
    output = io.StringIO()
    with (
        contextlib.chdir(root),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        status = pytest.main([*options, node_id], plugins=[Capture()])
    if status:
        # a test that is not found has no report
        text = "\n".join(Capture.failures) or output.getvalue()
        raise RuntimeError(f"{node_id} does not pass here: {_reason_in(text)}")
    return {spec.name: spec for specs in Capture.session.calls.values() for spec in specs}


def _reason_in(session_output: str) -> str:
    """The error of a session of pytest, without the session around it."""
    lines = [line.strip() for line in session_output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E ", "ERROR: "))]
    if not errors:
        return lines[-1] if lines else "no reason was given"
    return re.sub(r"^(E|ERROR:)\s+", "", errors[-1])


# --- checks and measurements


def _check(specs: list[KernelSpec], device: str) -> str | None:
    """Why a call is not correct; None if all are."""
    from roofwatch.collector.accuracy.baseline import CheckCache
    from roofwatch.collector.accuracy.check import check_case

    for spec in specs:
        for case in spec.cases:
            report = check_case(
                spec=spec,
                case=case,
                implementation=spec.implementations[_IMPLEMENTATION],
                cache=CheckCache(),
                device=device,
            )
            if report.outcome.is_failure:
                return f"{case.direction} of {spec.name}: {report.outcome}: {report.message}"
    return None


def _measure(item: pytest.Item, session: _Session) -> str | None:
    """Measure the calls of a test; returns why it fails, if it does. One test at a time on this
    machine.
    """
    from roofwatch.ci.report.comment import verdict_line
    from roofwatch.ci.report.pull_request import judge_pull_request
    from roofwatch.collector.runs.measure import measure
    from roofwatch.collector.runs.run_plan import RunPlan
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.measurement.run import FIRST_BLOCKS, AdaptiveBlocks, needs_more
    from roofwatch.model.errors import SuiteError
    from roofwatch.model.verdict import exit_code

    assert session.parts is not None
    _announce(item)
    plan = RunPlan(targets=(), device=session.device, block_count=FIRST_BLOCKS)
    against = item.config.getoption("--roofwatch-against")
    failure = None
    with contextlib.ExitStack() as stack:
        # Workers of pytest-xdist take turns: two measurements would disturb each other.
        fcntl.flock(stack.enter_context((session.parts / "lock").open("w")), fcntl.LOCK_EX)
        head = stack.enter_context(_suite(item, None))
        fork_server = stack.enter_context(ForkServer())
        record: RunRecord | None = None
        if against:
            more = AdaptiveBlocks(
                judge=judge_pull_request,
                helps=needs_more,
                budget_s=_BUDGET_S,
                on_status=lambda _: None,
            )
            try:
                base = stack.enter_context(_suite(item, against))
                old, new = measure([base, head], plan, fork_server=fork_server, more=more)
            except SuiteError as error:
                item.warn(pytest.PytestWarning(f"roofwatch: not compared with {against}: {error}"))
            else:
                judged = judge_pull_request(old, new)
                if exit_code(judged.verdict) == 1:
                    failure = verdict_line(judged)
                record = new.model_copy(update={"pairing": None})
                for side in (old, new):
                    _warn_of_foreign_code(item, side)
        if record is None:
            try:
                (record,) = measure([head], plan, fork_server=fork_server)
            except SuiteError as error:
                if NO_TIME not in str(error):
                    return f"not measured: {error}"
                item.warn(pytest.PytestWarning(f"roofwatch: {NO_TIME}"))
                return None
        record.write(session.parts / f"{record.run_id}.json")
    return failure


def _announce(item: pytest.Item) -> None:
    """Say how long a measurement takes; a worker of pytest-xdist has no terminal."""
    from roofwatch.measurement.load import BUSY_LOAD, load_per_processor

    reporter = item.config.pluginmanager.get_plugin("terminalreporter")
    against = item.config.getoption("--roofwatch-against")
    if reporter is None or not against:
        return
    capture = item.config.pluginmanager.get_plugin("capturemanager")
    is_shown: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if capture is not None:
        # while a test runs, pytest keeps what is written
        is_shown = capture.global_and_fixture_disabled()
    load = load_per_processor()
    duration = f"about half a minute, and at most {_BUDGET_S:.0f} s more while it is undecided"
    if load > BUSY_LOAD:
        duration += f"; several times that now, as the machine is busy ({load:.1f} per processor)"
    with is_shown:
        reporter.ensure_newline()
        reporter.write_line(f"roofwatch: comparing {item.name} with {against}: {duration}")


def _warn_of_foreign_code(item: pytest.Item, record: RunRecord) -> None:
    from roofwatch.model.provenance import ForeignCodeError

    try:
        record.require_own_code()
    except ForeignCodeError as error:
        item.warn(pytest.PytestWarning(f"roofwatch: nothing was compared: {error}"))


@contextlib.contextmanager
def _suite(item: pytest.Item, revision: str | None) -> Iterator[SuiteAt]:
    """The calls of a test as a suite, in the work tree or at a revision."""
    from roofwatch.collector.build.prepare import prepare_suite
    from roofwatch.collector.build.submodules import fill_submodules
    from roofwatch.collector.git import checked_out, commit_of, find_repository, read_commit
    from roofwatch.collector.suite import SuiteAt

    commit, project = commit_of(item.path)
    repository = find_repository(item.path)
    root = item.config.rootpath
    work_tree = repository
    test = item.path
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-suite-")))
        if revision is not None:
            if repository is None:
                raise pytest.UsageError("--roofwatch-against: the test is not in a git repository")
            commit = read_commit(repository, revision).model_copy(
                update={"is_dirty": False, "branch": None}
            )
            # The test of the base measures the base: its own checkout, with its own files.
            checkout = stack.enter_context(checked_out(repository, revision, folder / "checkout"))
            fill_submodules(repository, commit.sha, checkout)
            test = checkout / os.path.relpath(test, repository)
            root = checkout / os.path.relpath(root, repository)
            repository = checkout
        file = folder / "bench_calls.py"
        file.write_text(
            "from roofwatch.testing.plugin import specs_of\n\n"
            f"globals().update(specs_of({item.nodeid!r}, {str(root)!r}))\n"
        )
        source = replace(prepare_suite(test, repository, work_tree), path=file)
        yield SuiteAt(source, commit, project)
