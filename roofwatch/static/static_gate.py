"""`roofwatch static`: compiles a suite, compares it with a revision,
and applies the baseline file.
"""

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from roofwatch.ci.judge.change import subject_of
from roofwatch.ci.messages import listed
from roofwatch.ci.static.analyses import AnalysisEvidence, analyses_of, judge_analyses
from roofwatch.ci.static.baseline import (
    AppliedBaseline,
    Baseline,
    BaselineError,
    Facts,
    apply_baseline,
    head_of,
    judge_entry,
    judge_without_base,
    tightened,
    to_toml,
    with_accepted,
)
from roofwatch.ci.static.comparison import (
    CodeEvidence,
    JudgedCode,
    StaticChange,
    judge_static,
    with_prediction_decisive,
    word_of,
)
from roofwatch.collector.git import find_repository, is_in_commit
from roofwatch.collector.runs.run_plan import OnProgress, Progress, RunPlan
from roofwatch.collector.runs.static_compiler import StaticResults, analyse_suite
from roofwatch.collector.suite import CAPTURE_HEADER
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.configuration.arguments import suite_source
from roofwatch.console.terminal import print_error, write_text
from roofwatch.install import INSTALL_ROOT, PACKAGE_DIR
from roofwatch.measurement.revisions import open_suite
from roofwatch.measurement.toolchains import find_toolchain
from roofwatch.model.errors import SuiteError, ToolchainError
from roofwatch.model.history import Cause
from roofwatch.model.proofs import OperatorCost, OverflowProof, Proof
from roofwatch.model.results import StaticFacts
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.verdict import Reason, Verdict
from roofwatch.reporting.report_files import BASELINE_NAME, read_baseline


@dataclass(frozen=True)
class StaticAnswer:
    """Result of `roofwatch static`: without a base `compared` is empty; `written` was written to
    the baseline.
    """

    facts: tuple[StaticFacts, ...]
    proofs: tuple[OverflowProof, ...]
    costs: tuple[OperatorCost, ...]
    base: str | None
    """A commit or a release of Triton."""
    compared: JudgedCode
    applied: AppliedBaseline
    baseline: Baseline
    baseline_file: Path
    written: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 if nothing is worse, 1 if something is, 2 if that cannot be decided."""
        # A new case has no base to be worse than.
        verdicts = [
            item.verdict for item in self.applied.changes if item.reason is not Reason.NEW_CASE
        ]
        if Verdict.REGRESSED in verdicts or self.unsafe:
            return 1
        if self.base is not None:
            return 2 if Verdict.INCONCLUSIVE in verdicts else 0
        # Without a base, all that can be wrong is a failure that the baseline does not accept.
        for facts in self.facts:
            entry = self.baseline.get(subject_of(facts))
            is_accepted = entry is not None and judge_entry(entry, facts) is Verdict.UNCHANGED
            if facts.outcome.is_failure and not is_accepted:
                return 2
        return 0

    @property
    def unsafe(self) -> tuple[OverflowProof, ...]:
        """Proofs of an overflow that the baseline does not accept."""
        unaccepted: list[OverflowProof] = []
        for proof in self.proofs:
            (analysis,) = analyses_of([proof], [])
            entry = self.baseline.get(subject_of(analysis))
            is_accepted = entry is not None and judge_entry(entry, analysis) is Verdict.UNCHANGED
            if proof.proof is Proof.UNSAFE and not is_accepted:
                unaccepted.append(proof)
        return tuple(unaccepted)


def answer(
    path: Path | None,
    plan: RunPlan,
    on_progress: OnProgress,
    *,
    is_complete: bool = True,
    base: str | None = None,
    base_triton: str | None = None,
    extra_index_url: str | None = None,
    accept: str | None = None,
    tighten: bool = False,
    use_cache: bool = True,
    predicted_fails: bool = False,
) -> StaticAnswer:
    """Compile a suite, None for the bundled one, and the same suite at a base revision; judge the
    differences.

    Another release of Triton is a base too. A plan is complete if it selects all kernels,
    implementations and tags. A reason to accept adds what got worse to the repository's baseline;
    tightening updates entries that got better, and removes deleted functions.

    Raises:
        SuiteError: a suite cannot be loaded, nothing in it matches the plan, or two bases are
        given. ToolchainError: the release of Triton cannot be used.
        GitError: the revision or the repository does not exist.
        BaselineError: the baseline file cannot be read, or the reason is empty.
    """
    file = baseline_file(path)
    entries = read_baseline(file)
    if accept is not None and not accept.strip():
        raise BaselineError("--accept: give a reason; it is stored in the baseline file")

    def compile_at(
        source: SuiteSource,
        prefix: str = "",
        packages: Path | None = None,
    ) -> StaticResults:
        def show(now: Progress) -> None:
            on_progress(Progress(now.done, now.total, f"{prefix}{now.text}"))

        return analyse_suite(source, plan, show, use_cache=use_cache, packages=packages)

    before = StaticResults()
    base_name: str | None = None
    if base is not None and base_triton is not None:
        raise SuiteError("--base and --base-triton: give one of them")
    if base is not None:
        try:
            if path is not None and not is_in_commit(path, base):
                print_error(
                    f"{path.name}: not in {base}; that of the work tree is used on both sides"
                )
            # the kernels of the base with the cases of the work tree, as `ab` measures them
            with (
                ForkServer() as fork_server,
                open_suite(path, base, fork_server, benchmarks=path) as suite,
            ):
                before = compile_at(suite.source, "base: ")
                base_name = suite.commit.sha[:12]
        except SuiteError as error:
            raise SuiteError(f"base {base}: {error}") from None
    if base_triton is not None:
        on_progress(Progress(0, 0, f"installing triton {base_triton}"))
        toolchain = find_toolchain(base_triton, extra_index_url=extra_index_url)
        if toolchain.packages is None:
            raise ToolchainError(
                f"{toolchain.name} is the running version: name another one to compare it with"
            )
        base_name = toolchain.name
        before = compile_at(suite_source(path), f"{base_name}: ", toolchain.packages)
        require_other_triton(before, results_name=base_name)
    results = compile_at(suite_source(path))
    analyses = analyses_of(results.proofs, results.costs)
    compared = JudgedCode()
    # Without a base, an overflow at a declared size is judged all the same.
    analysed = judge_analyses((), analyses)
    if base_name is not None:
        compared = judge_static(before.facts, results.facts)
        if predicted_fails:
            decisive = tuple(map(with_prediction_decisive, compared.changes))
            compared = replace(compared, changes=decisive)
        analysed = judge_analyses(analyses_of(before.proofs, before.costs), analyses)

    def apply(entries: Baseline) -> AppliedBaseline:
        judged = compared.changes
        if base_name is None:
            judged = judge_without_base(entries, results.facts)
        everything: list[Facts] = [*results.facts, *analyses]
        return apply_baseline(entries, (*judged, *analysed), everything, is_complete=is_complete)

    applied = apply(entries)
    written: list[str] = []
    if accept is not None:
        regressed = [item for item in applied.changes if item.verdict is Verdict.REGRESSED]
        heads = [head_of(change) for change in regressed]
        worse = [facts for facts in heads if facts is not None]
        entries = with_accepted(entries, worse, accept.strip())
        written.append(f"accepted: {len(worse)}")
    if tighten:
        entries = tightened(entries, applied)
        written.append(f"updated: {len(applied.better)}, removed: {len(applied.stale)}")
    # An empty baseline needs no file.
    if written and (entries or file.exists()):
        write_text(file, to_toml(entries))
    return StaticAnswer(
        facts=results.facts,
        proofs=results.proofs,
        costs=results.costs,
        base=base_name,
        compared=compared,
        applied=apply(entries),
        baseline=entries,
        baseline_file=file,
        written=tuple(written),
    )


def baseline_file(path: Path | None) -> Path:
    """Return the baseline file of a suite, in the root of its repository."""
    repository = find_repository(Path(__file__) if path is None else path.resolve())
    return (repository or Path()) / BASELINE_NAME


def require_other_triton(results: StaticResults, *, results_name: str) -> None:
    """Require that another release compiled a suite, and not the running one.

    Raises:
        ToolchainError: the running version comes first on the import path.
    """
    versions = {facts.toolchain["triton"] for facts in results.facts if "triton" in facts.toolchain}
    if versions == {version("triton")}:
        raise ToolchainError(f"{results_name}: triton {version('triton')} comes first on the path")


# --- output


def notes(answer: StaticAnswer) -> Iterator[str]:
    if answer.base is not None:
        counts = Counter(word_of(item) for item in answer.applied.changes)
        counts["same code"] = sum(answer.compared.unchanged_by_target.values())
        counted = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()) if count)
        yield f"compared with {answer.base}: {counted or 'nothing to compare'}"
    gone = answer.compared.gone
    if gone:
        yield f"only in the base: {listed(map(' '.join, gone))}"
    for line in answer.written:
        yield f"{line} ({answer.baseline_file})"
    yield from map(str, answer.applied.notes)


def to_json(answer: StaticAnswer) -> dict[str, Any]:
    applied = answer.applied
    named = {"case_id", "implementation", "function", "target", "reason"}
    better = [entry.model_dump(include=named) for entry, _ in applied.better]
    stale = [entry.model_dump(include=named) for entry in applied.stale]
    return {
        "static_facts": answer.facts,
        "overflow_proofs": answer.proofs,
        "operator_costs": answer.costs,
        "base": answer.base,
        "judged": [_change_to_json(item) for item in applied.changes],
        "unchanged_by_target": answer.compared.unchanged_by_target,
        "gone": answer.compared.gone,
        "baseline": {"file": str(answer.baseline_file), "better": better, "stale": stale},
        "exit_code": answer.exit_status,
    }


def _change_to_json(change: StaticChange) -> dict[str, Any]:
    evidence = change.evidence
    document: dict[str, Any] = {
        "case_id": change.subject.case_id,
        "implementation": change.subject.implementation,
        "function": change.subject.part,
        "target": change.subject.target,
        "verdict": change.verdict,
        "reason": change.reason,
        "cause": change.cause or Cause.CODE,
        "detail": None if change.detail is None else str(change.detail),
        "base": None,
        "head": None,
        "predicted_ratio": None,
        "values": None,
    }
    # An analysis has numbers; compiled code has its facts.
    if isinstance(evidence, AnalysisEvidence):
        document["values"] = dict(evidence.head.values)
    else:
        document["base"] = evidence.base
        document["head"] = evidence.head
    if isinstance(evidence, CodeEvidence) and evidence.prediction is not None:
        document["predicted_ratio"] = math.exp(evidence.prediction.log_ratio)
    return document


# --- `roofwatch static capture`


def capture_launches(command: Sequence[str], output: Path) -> int:
    """Run a program, add its launches to a captured benchmark file, and return its exit status.

    The command is a Python file or `-m` and a module, with arguments; it may start with `python`.

    Raises:
        SuiteError: the output is no Python file, or the program does not exist.
    """
    words = list(command)
    # People paste the command that they use.
    if words and Path(words[0]).name.startswith("python"):
        words = words[1:]
    if output.suffix != ".py":
        raise SuiteError(f"{output}: a benchmark file ends in .py")
    if output.exists() and not output.read_text(encoding="utf-8").startswith(CAPTURE_HEADER):
        raise SuiteError(
            f"{output}: was not written by roofwatch static capture; choose another file with "
            f"--output"
        )
    is_module = bool(words) and words[0] == "-m"
    if is_module:
        is_complete = len(words) > 1
    else:
        is_complete = bool(words) and Path(words[0]).is_file()
    if not is_complete:
        raise SuiteError(
            f"{' '.join(command) or 'no program'}: give a Python file, or -m and a module"
        )
    entry = str(PACKAGE_DIR / "collector" / "compile" / "capture_main.py")
    # The program's own interpreter imports roofwatch from here, whatever is installed there.
    paths = [os.environ.get("PYTHONPATH", ""), str(INSTALL_ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    arguments = [sys.executable, "-P", entry, str(output), "--", *words]
    return subprocess.run(arguments, check=False, env=environment).returncode
