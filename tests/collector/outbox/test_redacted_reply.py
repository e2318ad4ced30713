"""Whatever a kernel says as it fails is fit to leave the machine before it is written anywhere."""

from pathlib import Path

import pytest

from roofwatch.collector.outbox.journal import ALONE, Journal, make_header
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.run import measure
from roofwatch.collector.run_plan import Progress, RunPlan
from roofwatch.collector.suite import SuiteAt, SuiteSource
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.check import check_suite
from tests.builders import make_commit
from tests.collector.conftest import by_kernel

pytestmark = pytest.mark.usefixtures("forked_servers")

TELLS = SuiteAt(SuiteSource(Path(__file__).parents[2] / "suites" / "bench_tells.py"), make_commit(), "example")
QUICK = SamplingPlan(warmup_ms=1, budget_ms=2)
PLAN = RunPlan(device="cpu", targets=(), block_count=1, sampling=QUICK, has_profiles=True)
TOLD = "<path>/weights.bin of <mail> with --token <secret>"


def test_the_journal_is_redacted(fork_server: ForkServer, tmp_path: Path) -> None:
    path = tmp_path / "record.json.journal"
    said: list[Progress] = []
    with Journal(path, make_header({ALONE: TELLS}, PLAN)) as journal:
        (record,) = measure([TELLS], PLAN, said.append, fork_server=fork_server, journal=journal)
        written = path.read_text()

    measured = by_kernel(record)
    messages = {kernel: measurement.message or "" for kernel, measurement in measured.items()}
    assert messages["raises"].endswith(f"cannot read {TOLD}")
    assert f"giving up at {TOLD}" in messages["dies"]
    assert messages["raises_later"].endswith(f"cannot write {TOLD}")
    assert written.count("<path>/weights.bin") == 3
    assert not [secret for secret in ("alice", "secret-project", "hunter2") if secret in written]
    [noted] = [step.text for step in said if step.is_to_stay]
    assert noted.startswith("raises_if_profiled/n=64/float32/fwd torch was not profiled: ")
    assert noted.endswith(f"cannot trace {TOLD}")
    assert (measured["raises_if_profiled"].outcome, record.profiles) == (Outcome.OK, ()), "its times stay"


def test_the_report_of_a_check_is_redacted(fork_server: ForkServer) -> None:
    reports = check_suite(TELLS.source, RunPlan(kernels=("raises", "dies")), fork_server=fork_server)

    assert [report.outcome for report in reports] == [Outcome.CRASHED] * 2
    assert all(TOLD in (report.message or "") for report in reports)
