"""Check releases before and after the fix of a public bug, and print both verdicts.

    python -m bench.public_bugs.run [--only swiglu] [--folder build/public-bugs]

Each release is installed into a folder of its own, without its dependencies. The row of a bug goes
to standard error as soon as both of its releases are checked; the whole table is printed last.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
        # a dependency such as torch is that of this environment
        options = ["--no-deps", "--no-compile", "--target", str(target)]
        requirement = f"{package}=={release}"
        subprocess.run([*pip, *options, requirement], check=True)
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
    command = [
        sys.executable,
        "-m",
        "roofwatch",
        "check",
        str(HERE / suite),
        "--json",
    ]
    for kernel in kernels:
        command += ["--case", f"{kernel}/*"]
    installed = install(package, release, folder)
    # the release comes before an installed one
    import_path = [str(installed)]
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
    stored: JsonObject = {}
    for name, value in report.items():
        # the command that repeats a check, for example, is printed only
        if name in CheckReport.model_fields:
            stored[name] = value
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
        for change in judge_analyses(base, head):
            if change.verdict is Verdict.REGRESSED:
                return True, str(change.detail)
        return False, "not regressed"
    claims = [claim for claim in proofs_of(suite) if claim.claim == bug.claim]
    (claim,) = claims
    is_flagged = claim.result is Proved.REFUTED
    return is_flagged, f"{claim.result}: {claim.detail}"


Release = tuple[str, str, str]
"""Package, release and suite."""


def broken_release(bug: Bug) -> Release:
    return bug.package, bug.broken, suite_of(bug)


def fixed_release(bug: Bug) -> Release:
    return bug.package, bug.fixed, suite_of(bug)


@dataclass(frozen=True)
class Answer:
    """What was said of the broken and of the fixed release of a bug."""

    bug: Bug
    is_found: bool
    detail: str
    is_false_alarm: bool
    false_alarm: str

    def wrong_count(self) -> int:
        """Both are errors: a bug that is missed, and a fixed release that is accused."""
        is_missed = not self.is_found
        return int(is_missed) + int(self.is_false_alarm)

    def row(self) -> str:
        """A row of a Markdown table."""
        bug = self.bug
        broken = bug.broken
        if not self.is_found:
            broken += " NOT FLAGGED"
        fixed = bug.fixed
        if self.is_false_alarm:
            fixed += f" FLAGGED {self.false_alarm}"
        cells = [
            bug.package,
            bug.kernel,
            bug.symptom,
            broken,
            fixed,
            self.detail,
        ]
        return f"| {' | '.join(cells)} |"


def answer_of(bug: Bug, suites: Mapping[Release, CheckedSuite]) -> Answer:
    # a release is checked for several bugs at once
    broken = of_kernel(suites[broken_release(bug)], bug.kernel)
    fixed = of_kernel(suites[fixed_release(bug)], bug.kernel)
    is_found, detail = describe(bug, broken, fixed)
    is_false_alarm, false_alarm = describe(bug, fixed, broken)
    return Answer(
        bug=bug,
        is_found=is_found,
        detail=detail,
        is_false_alarm=is_false_alarm,
        false_alarm=false_alarm,
    )


def check_releases(
    bugs: Iterable[Bug],
    folder: Path,
) -> Iterator[tuple[Release, CheckedSuite]]:
    """Check the broken and the fixed release of each bug; yield each answer when it is there."""
    kernels = defaultdict[Release, list[str]](list)
    for bug in bugs:
        # each release is checked once for all of its kernels
        kernels[broken_release(bug)].append(bug.kernel)
        kernels[fixed_release(bug)].append(bug.kernel)
    for release, names in kernels.items():
        package, version, suite = release
        _report(f"{package} {version}: {', '.join(names)}")
        checked = check_release(
            package=package,
            release=version,
            suite=suite,
            kernels=names,
            folder=folder,
        )
        yield release, checked


def answer_bugs(bugs: Sequence[Bug], folder: Path) -> Iterator[Answer]:
    """Yield the answer about each bug as soon as both of its releases are checked."""
    suites: dict[Release, CheckedSuite] = {}
    for release, checked in check_releases(bugs, folder):
        suites[release] = checked
        for bug in bugs:
            releases = {broken_release(bug), fixed_release(bug)}
            if release in releases and releases <= suites.keys():
                yield answer_of(bug, suites)


def _report(line: str) -> None:
    """Print progress at once: an interruption loses nothing that was seen."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="A kernel.")
    parser.add_argument("--folder", type=Path, default=Path("build/public-bugs"))
    options = parser.parse_args()
    bugs = [*BUGS, *LIGER_OPTION_BUGS, *FLAG_GEMS_BUGS]
    if options.only:
        bugs = [bug for bug in bugs if bug.kernel == options.only]
    answers: list[Answer] = []
    for answer in answer_bugs(bugs, options.folder):
        _report(answer.row())
        answers.append(answer)
    # releases are shared, so bugs are not answered in their order
    answers.sort(key=lambda answer: bugs.index(answer.bug))
    print("| package | kernel | bug | broken | fixed | the broken release |")
    print("|---|---|---|---|---|---|")
    for answer in answers:
        print(answer.row())
    wrong_count = sum(answer.wrong_count() for answer in answers)
    print(f"\n{len(bugs)} bugs, {wrong_count} wrong answers")
    raise SystemExit(int(wrong_count > 0))


if __name__ == "__main__":
    main()
