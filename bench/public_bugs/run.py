"""Check releases before and after the fix of a public bug, and print both verdicts.

    python -m bench.public_bugs.run [--only swiglu] [--folder build/public-bugs]

Each release is installed into a folder of its own, without its dependencies.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.public_bugs.flag_gems_bugs import FLAG_GEMS_BUGS
from bench.public_bugs.known_bugs import BUGS, Bug
from bench.public_bugs.liger_option_bugs import LIGER_OPTION_BUGS
from roofwatch.ci.static.analyses import analyses_of, judge_analyses
from roofwatch.measurement.proofs import Proved, proofs_of
from roofwatch.model.check_report import CheckedSuite, CheckReport
from roofwatch.model.files import JsonObject
from roofwatch.model.proofs import OperatorCost, OverflowProof
from roofwatch.model.verdict import Verdict

HERE = Path(__file__).parent
SUITES = {
    "liger-kernel": "bench_liger.py",
    "fla-core": "bench_fla.py",
    "flag-gems": "bench_flag_gems.py",
    "unsloth": "bench_unsloth.py",
}


def install(package: str, release: str, folder: Path) -> Path:
    """Install one release without its dependencies, unless it is there."""
    target = folder / f"{package}-{release}"
    if not target.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
        options = ["--no-deps", "--no-compile", "--target", str(target)]
        # a dependency such as torch is that of this environment
        subprocess.run([*pip, *options, f"{package}=={release}"], check=True)
        for module in target.iterdir():
            # Python prefers an installed package to a folder without one
            if module.is_dir() and any(module.glob("*/*.py")):
                (module / "__init__.py").touch()
    return target


def suite_of(bug: Bug) -> str:
    return bug.suite or SUITES[bug.package]


def check_release(
    package: str,
    release: str,
    suite: str,
    kernels: Sequence[str],
    folder: Path,
) -> CheckedSuite:
    """Run `roofwatch check` with the release on the import path."""
    command = [sys.executable, "-m", "roofwatch", "check", str(HERE / suite), "--json"]
    for kernel in kernels:
        command += ["--case", f"{kernel}/*"]
    # the release comes before an installed one
    import_path = [str(install(package, release, folder))]
    if os.environ.get("PYTHONPATH"):
        import_path.append(os.environ["PYTHONPATH"])
    checked = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(import_path)},
    )
    # a crash is no answer about the bug
    if not checked.stdout:
        raise SystemExit(f"{package} {release}: {checked.stderr}")
    document: JsonObject = json.loads(checked.stdout)
    reports = [_known_fields(report) for report in document["reports"]]
    proofs = [OverflowProof.model_validate(proof) for proof in document["overflow_proofs"]]
    costs = [OperatorCost.model_validate(cost) for cost in document["operator_costs"]]
    return CheckedSuite(
        reports=tuple(reports),
        overflow_proofs=tuple(proofs),
        operator_costs=tuple(costs),
    )


def _known_fields(report: JsonObject) -> CheckReport:
    """Read a report without the printed fields that are not stored."""
    # such as the command that repeats it
    fields = CheckReport.model_fields
    stored = {name: value for name, value in report.items() if name in fields}
    return CheckReport.model_validate_json(json.dumps(stored))


def of_kernel(suite: CheckedSuite, kernel: str) -> CheckedSuite:
    """The part of an answer that is about one kernel."""

    def is_of_kernel(result: Any) -> bool:
        return bool(result.case_id.startswith(f"{kernel}/"))

    return CheckedSuite(
        reports=tuple(filter(is_of_kernel, suite.reports)),
        overflow_proofs=tuple(filter(is_of_kernel, suite.overflow_proofs)),
        operator_costs=tuple(filter(is_of_kernel, suite.operator_costs)),
    )


def describe(bug: Bug, suite: CheckedSuite, other_release: CheckedSuite) -> tuple[bool, str]:
    """Whether a release is flagged for a bug, and with which words."""
    # a cost is not wrong by itself, only against the other release
    if bug.claim == "cost":
        base = analyses_of((), other_release.operator_costs)
        head = analyses_of((), suite.operator_costs)
        changes = judge_analyses(base, head)
        worse = [change for change in changes if change.verdict is Verdict.REGRESSED]
        if not worse:
            return False, "not regressed"
        return True, str(worse[0].detail)
    (claim,) = [claim for claim in proofs_of(suite) if claim.claim == bug.claim]
    is_flagged = claim.result is Proved.REFUTED
    return is_flagged, f"{claim.result}: {claim.detail}"


Release = tuple[str, str, str]
"""Package, release and suite."""


def check_releases(bugs: Iterable[Bug], folder: Path) -> dict[Release, CheckedSuite]:
    """Check the broken and the fixed release of each bug."""
    kernels: dict[Release, list[str]] = defaultdict(list)
    for bug in bugs:
        for version in (bug.broken, bug.fixed):
            # each release is checked once for all of its kernels
            kernels[bug.package, version, suite_of(bug)].append(bug.kernel)
    suites: dict[Release, CheckedSuite] = {}
    for release, names in kernels.items():
        package, version, suite = release
        print(f"{package} {version}: {', '.join(names)}", file=sys.stderr, flush=True)
        suites[release] = check_release(
            package=package,
            release=version,
            suite=suite,
            kernels=names,
            folder=folder,
        )
    return suites


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="A kernel.")
    parser.add_argument("--folder", type=Path, default=Path("build/public-bugs"))
    options = parser.parse_args()
    listed = (*BUGS, *LIGER_OPTION_BUGS, *FLAG_GEMS_BUGS)
    bugs = [bug for bug in listed if options.only in ("", bug.kernel)]
    suites = check_releases(bugs, options.folder)
    print("| package | kernel | bug | broken | fixed | the broken release |")
    print("|---|---|---|---|---|---|")
    wrong_count = 0
    for bug in bugs:
        suite = suite_of(bug)
        broken_suite = suites[bug.package, bug.broken, suite]
        fixed_suite = suites[bug.package, bug.fixed, suite]
        # a release is checked for several bugs at once
        broken = of_kernel(broken_suite, bug.kernel)
        fixed = of_kernel(fixed_suite, bug.kernel)
        is_found, words = describe(bug, broken, fixed)
        is_alarm, alarm = describe(bug, fixed, broken)
        broken_mark = bug.broken
        # both are errors: a bug that is missed, and a fixed release that is accused
        if not is_found:
            wrong_count += 1
            broken_mark += " NOT FLAGGED"
        fixed_mark = bug.fixed
        if is_alarm:
            wrong_count += 1
            fixed_mark += f" FLAGGED {alarm}"
        cells = [bug.package, bug.kernel, bug.symptom, broken_mark, fixed_mark, words]
        print("|", " | ".join(cells), "|")
    print(f"\n{len(bugs)} bugs, {wrong_count} wrong answers")
    raise SystemExit(int(wrong_count > 0))


if __name__ == "__main__":
    main()
