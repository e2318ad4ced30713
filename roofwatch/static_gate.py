"""What `roofwatch static` is asked, and its answer: compiled, compared with a revision, held against the baseline."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from roofwatch.arguments import suite_source
from roofwatch.ci.reason import Reason
from roofwatch.ci.static.baseline import (
    Baseline,
    BaselineError,
    Held,
    hold,
    judge_alone,
    parse_baseline,
    to_toml,
)
from roofwatch.ci.static.comparison import StaticComparison, compare_static, place_of
from roofwatch.collector.compile.signature import SIGNATURE_SUFFIX
from roofwatch.collector.compile.static_run import compile_suite
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.git import find_repository
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import Commit
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run import OnProgress, Progress
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import own_suite_at_revision, suite_at_revision
from roofwatch.db.values import Verdict
from roofwatch.terminal import write_text

BASELINE_NAME = "roofwatch-static.toml"
SIGNATURES_NAME = "roofwatch-signatures.toml"
_FINE = frozenset({Outcome.OK, Outcome.UNSUPPORTED})


@dataclass(frozen=True, kw_only=True)
class StaticRequest:
    """What the command was asked; the options of `roofwatch static`.

    Args:
        path: Benchmark file or folder, or a file of signatures; None for the bundled suite, or with a module for the
            usual file of signatures.
        is_whole: The plan chooses no kernels, implementations or tags.
        accept: Reason for accepting what got worse.
    """

    path: Path | None
    plan: RunPlan
    module: str | None = None
    is_whole: bool = True
    base: str | None = None
    baseline: Path | None = None
    accept: str | None = None
    tighten: bool = False
    use_cache: bool = True


@dataclass(frozen=True, kw_only=True)
class StaticAnswer:
    """What came of it."""

    facts: tuple[StaticFacts, ...]
    base: Commit | None
    compared: StaticComparison
    """Empty without a base."""
    held: Held
    """All that is judged, after the baseline has taken off what is accepted."""
    baseline: Baseline
    baseline_file: Path
    written: tuple[str, ...] = ()
    """What was written into the baseline file."""

    @property
    def exit_status(self) -> int:
        """0 if nothing is worse, 1 if something is, 2 if it could not be told."""
        verdicts = [item.verdict for item in self.held.judged if item.reason is not Reason.NEW_CASE]
        if Verdict.REGRESSED in verdicts:
            return 1
        if self.base is None:
            return 2 if any(self._has_failed(facts) for facts in self.facts) else 0
        return 2 if Verdict.INCONCLUSIVE in verdicts else 0

    def _has_failed(self, facts: StaticFacts) -> bool:
        entry = self.baseline.by_place.get(place_of(facts))
        return facts.outcome not in _FINE and (entry is None or entry.judge(facts) is not Verdict.UNCHANGED)


def answer(request: StaticRequest, on_progress: OnProgress) -> StaticAnswer:
    """Compile what is there, and what was there at the base; judge the one by the other.

    Raises:
        SuiteError: a suite cannot be loaded, or nothing in it matches the plan; of the base's the message says so.
        GitError: there is no such revision, or no repository.
        BaselineError: the baseline file cannot be read, or there is nothing to accept.
    """
    if request.module is not None:
        request = replace(request, path=_signatures(request.path))
    file = request.baseline or baseline_file(request.path)
    baseline = read_baseline(None if request.accept is not None else request.baseline, file)
    if request.accept is not None and not request.accept.strip():
        raise BaselineError("--accept: say why what got worse is accepted; the reason stays beside it in the file")
    before, commit = ((), None) if request.base is None else _compile_base(request, request.base, on_progress)
    source = suite_source(request.path, request.module)
    facts = compile_suite(source, request.plan, on_progress, use_cache=request.use_cache)
    compared = StaticComparison((), {}, ()) if commit is None else compare_static(before, facts)

    def held_against(baseline: Baseline) -> Held:
        judged = judge_alone(baseline, facts) if commit is None else compared.judged
        return hold(baseline, judged, facts, is_whole=request.is_whole)

    held = held_against(baseline)
    written: list[str] = []
    if request.accept is not None:
        worse = [item.head for item in held.judged if item.verdict is Verdict.REGRESSED and item.head is not None]
        baseline = baseline.with_accepted(worse, request.accept.strip())
        written.append(f"accepted: {len(worse)}" if worse else "nothing to accept: nothing got worse")
    if request.tighten:
        baseline = baseline.tightened(held)
        written.append(f"tightened: {len(held.better)}, dropped: {len(held.stale)}")
    if written and (baseline.by_place or file.exists()):
        write_text(file, to_toml(baseline))
    return StaticAnswer(
        facts=facts,
        base=commit,
        compared=compared,
        held=held_against(baseline),
        baseline=baseline,
        baseline_file=file,
        written=tuple(written),
    )


def read_baseline(file: Path | None, usual: Path) -> Baseline:
    """Read the baseline file that was named, else the usual one; without that nothing is accepted.

    Raises:
        BaselineError: it cannot be read, or is named and not there.
    """
    chosen = file or usual
    try:
        text = chosen.read_text(encoding="utf-8")
    except FileNotFoundError:
        if file is not None:
            raise BaselineError(
                f"{file}: no such file; `roofwatch static --base REV --accept REASON` makes one"
            ) from None
        return Baseline()
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"{chosen}: cannot be read: {error}") from None
    return parse_baseline(text, name=str(chosen))


def baseline_file(path: Path | None) -> Path:
    """The usual baseline file of a suite: that of its repository."""
    repository = find_repository(Path(__file__) if path is None else path.resolve())
    return (repository or Path()) / BASELINE_NAME


def notes(answer: StaticAnswer) -> Iterator[str]:
    """What to say below the table, line by line."""
    if answer.base is not None:
        yield _counts(answer, answer.base)
    if answer.compared.gone:
        listed = ", ".join(f"{case_id} {implementation}" for case_id, implementation in answer.compared.gone[:10])
        yield f"in the base only: {listed}{' and more' if len(answer.compared.gone) > 10 else ''}"
    for line in answer.written:
        yield f"{line} ({answer.baseline_file})"
    yield from map(str, answer.held.notes)


def to_json(answer: StaticAnswer) -> dict[str, Any]:
    """The document that `--json` prints."""
    fields = ("case_id", "implementation", "function", "target", "verdict", "reason", "cause", "base", "head")
    entries = {"better": [entry for entry, _ in answer.held.better], "stale": answer.held.stale}
    return {
        "static_facts": [facts.model_dump(mode="json") for facts in answer.facts],
        "base": answer.base,
        "judged": [
            {name: getattr(item, name) for name in fields}
            | {"detail": None if item.detail is None else str(item.detail)}
            for item in answer.held.judged
        ],
        "unchanged_by_target": answer.compared.unchanged_by_target,
        "gone": answer.compared.gone,
        "baseline": {
            "file": str(answer.baseline_file),
            **{
                name: [asdict(entry.place) | {"reason": entry.reason} for entry in listed]
                for name, listed in entries.items()
            },
        },
        "exit_code": answer.exit_status,
    }


def _counts(answer: StaticAnswer, base: Commit) -> str:
    words = Counter(item.word for item in answer.held.judged)
    words["the same code"] = sum(answer.compared.unchanged_by_target.values())
    listed = ", ".join(f"{count} {word}" for word, count in sorted(words.items()) if count)
    return f"against {base.sha[:12]}: {listed or 'nothing to compare'}"


def _compile_base(
    request: StaticRequest, revision: str, on_progress: OnProgress
) -> tuple[tuple[StaticFacts, ...], Commit]:
    def say(now: Progress) -> None:
        on_progress(Progress(now.done, now.total, f"base: {now.text}"))

    with tempfile.TemporaryDirectory(prefix="roofwatch-static-") as temporary:
        folder = Path(temporary) / "base"
        checked_out = (
            own_suite_at_revision(revision, folder)
            if request.path is None
            else suite_at_revision(request.path, revision, folder)
        )
        with checked_out as suite:
            try:
                source = replace(suite.source, module=request.module)
                facts = compile_suite(source, request.plan, say, use_cache=request.use_cache)
            except SuiteError as error:
                # the folder is gone when this is read
                text = str(error).replace(f"{folder}/", "")
                raise SuiteError(f"the base, {revision}, cannot be compared with: {text}") from None
            return facts, suite.commit


def _signatures(path: Path | None) -> Path:
    """The file of signatures for a module.

    Raises:
        SuiteError: what was given is no such file, or the usual one is not there.
    """
    file = path or Path(SIGNATURES_NAME)
    if file.suffix != SIGNATURE_SUFFIX:
        raise SuiteError(f"{file}: --module takes a file of signatures, which ends in {SIGNATURE_SUFFIX}")
    if not file.exists():
        raise SuiteError(
            f"{file}: no such file of signatures, and without one nobody knows how a function is launched: "
            "`roofwatch static capture -- PROGRAM.py` makes one"
        )
    return file
