"""What provenance costs: its share of the time of `roofwatch run` on one kernel.

    PYTHONPATH=. python bench/provenance.py [SUITE --kernel NAME]

prints the time that one run spent to find and hash the loaded files of the project, and the share
of the whole run. Without a suite, a package is made whose benchmark loads a hundred modules.
"""

import argparse
import tempfile
from pathlib import Path

from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import ALL, Activity, RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.configuration.arguments import suite_at
from roofwatch.model.record import RunRecord
from tests.git_repository import commit_all
from tests.packaged import make_pure, write

LIMIT = 0.02
"""Share of the time of a run that provenance may take."""
_MODULES = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite", type=Path, nargs="?")
    parser.add_argument("--kernel", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        suite = options.suite or make_suite(Path(folder) / "repository")
        record = measure_one(suite, options.kernel)
    print(report(record))


def make_suite(folder: Path) -> Path:
    """A benchmark whose package imports a hundred modules of its own."""
    make_pure(folder)
    names = [f"part_{number}" for number in range(_MODULES)]
    imports = "".join(f"from qk import {name}\n" for name in names)
    # A hundred lines each: hashing must have something to read.
    files = {f"python/qk/{name}.py": f"NAME = {name!r}\n" * 100 for name in names}
    ops = folder / "python" / "qk" / "ops.py"
    files["python/qk/ops.py"] = imports + ops.read_text()
    write(folder, files)
    commit_all(folder, "A hundred modules")
    return folder / "bench"


def measure_one(suite: Path, kernel: str | None) -> RunRecord:
    plan = RunPlan(kernels=ALL if kernel is None else (kernel,), device="cpu")
    with ForkServer() as fork_server:
        (record,) = measure([suite_at(suite, None)], plan, fork_server=fork_server)
    return record


def report(record: RunRecord) -> str:
    """How much of a run goes into provenance."""
    spent_ns = record.spent_ns.get(Activity.PROVENANCE, 0)
    total_ns = sum(record.spent_ns.values())
    return (
        f"{len(record.provenance)} files of the project, {len(record.measurements)} results\n"
        f"provenance {spent_ns / 1e6:.1f} ms of {total_ns / 1e6:.0f} ms: "
        f"{spent_ns / total_ns:.2%} (limit {LIMIT:.0%})"
    )


if __name__ == "__main__":
    main()
