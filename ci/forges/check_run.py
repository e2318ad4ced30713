"""A judgement as a check-run on a pull request's commit, with annotations in the source.

It fails on a regression, and is neutral if the data cannot decide. Annotations are plain text.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import code, plain
from roofwatch.ci.report.change_words import counted_changes, line_of, name_of, text_of
from roofwatch.ci.report.comment import summary_line
from roofwatch.ci.report.not_measured import NotMeasured
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.model.claim import CheckPolicy
from roofwatch.model.files import JsonObject
from roofwatch.model.source_line import SourceLine
from roofwatch.model.verdict import Verdict

MAX_ANNOTATIONS = 100
# GitHub's limit
_ANNOTATIONS_PER_REQUEST = 50
_MAX_TITLE = 200
_MAX_FINDINGS = 10
"""In one annotation."""
_MAX_TEXT = 400


class Conclusion(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


_CONCLUSIONS = {
    Verdict.REGRESSED: Conclusion.FAILURE,
    Verdict.INCONCLUSIVE: Conclusion.NEUTRAL,
    Verdict.IMPROVED: Conclusion.SUCCESS,
    Verdict.UNCHANGED: Conclusion.SUCCESS,
}


@dataclass(frozen=True)
class Annotation:
    """A message at one line of the head's source."""

    file: str
    line: int
    is_failure: bool
    title: str
    message: str
    """Plain text."""

    def to_json(self) -> JsonObject:
        """Write it as GitHub's API takes it."""
        level = "notice"
        if self.is_failure:
            level = "failure"
        return {
            "path": self.file,
            "start_line": self.line,
            "end_line": self.line,
            "annotation_level": level,
            "title": self.title,
            "message": self.message,
        }


@dataclass(frozen=True)
class CheckRun:
    conclusion: Conclusion | None
    """None while it is in progress."""
    title: str
    summary: str
    """Markdown."""
    annotations: tuple[Annotation, ...] = ()

    def requests(self, url: str | None) -> Iterator[JsonObject]:
        """Write the fields of each request to GitHub's REST API, with a link to the details."""
        fields: JsonObject = {"status": "in_progress"}
        if self.conclusion is not None:
            fields = {"status": "completed", "conclusion": self.conclusion.value}
        if url is not None:
            fields["details_url"] = url
        # GitHub takes only so many annotations in one request
        for start in range(0, max(1, len(self.annotations)), _ANNOTATIONS_PER_REQUEST):
            output: JsonObject = {"title": self.title, "summary": self.summary}
            if sent := self.annotations[start : start + _ANNOTATIONS_PER_REQUEST]:
                output["annotations"] = [annotation.to_json() for annotation in sent]
            yield fields | {"output": output}

    def accepted(self, sentence: str) -> "CheckRun":
        """Return the same check-run, neutral because someone accepted it; a success stays one."""
        title = f"accepted: {self.title}"[:_MAX_TITLE]
        summary = f"**Accepted** {sentence}.\n\n{self.summary}"
        conclusion = Conclusion.NEUTRAL
        if self.conclusion is Conclusion.SUCCESS:
            conclusion = Conclusion.SUCCESS
        return replace(
            self,
            conclusion=conclusion,
            title=title,
            summary=summary,
        )


BEGUN = CheckRun(
    conclusion=None,
    title="measuring",
    summary="Base and head are being measured.",
)


def concluded(judgement: PullRequestJudgement, summary: str) -> CheckRun:
    """Write the check-run of a judgement, with its report as Markdown; GitHub's limit is 65,535
    characters.
    """
    title = plain(summary_line(judgement), limit=_MAX_TITLE)
    conclusion = _CONCLUSIONS[judgement.verdict]
    if judgement.missing:
        conclusion = Conclusion.FAILURE
    return CheckRun(
        conclusion=conclusion,
        title=title,
        summary=summary,
        annotations=annotations_of(judgement),
    )


def not_measured(
    reason: str,
    title: str = "no result: not measured",
    *,
    policy: CheckPolicy,
) -> CheckRun:
    """Write the check-run if there is nothing to judge; the reason may have untrusted text."""
    text = f"Nothing was compared: {code(reason, limit=1_000)}."
    if policy.requires:
        text += f" {_required(policy)}"
    return CheckRun(
        conclusion=_without_result(policy),
        title=title,
        summary=text,
    )


def _without_result(policy: CheckPolicy) -> Conclusion:
    """A neutral conclusion would satisfy a check that a branch requires."""
    if policy.requires:
        return Conclusion.FAILURE
    return Conclusion.NEUTRAL


def _required(policy: CheckPolicy) -> str:
    return f"Required: {', '.join(policy.requires)}."


def without_records(note: NotMeasured, *, policy: CheckPolicy) -> CheckRun:
    """Write the check-run of a measurement that ended without records."""
    conclusion = Conclusion.SUCCESS
    if note.error:
        conclusion = _without_result(policy)
    if note.is_failure:
        conclusion = Conclusion.FAILURE
    return CheckRun(
        conclusion=conclusion,
        title=plain(note.title, limit=_MAX_TITLE),
        summary=note.to_markdown(),
    )


def annotations_of(judgement: PullRequestJudgement) -> tuple[Annotation, ...]:
    """Write an annotation for each function with findings: regressions first, then improvements."""
    by_line: dict[SourceLine, list[Change[Any]]] = defaultdict(list)
    for change in counted_changes(judgement):
        line = line_of(judgement.source_lines, change)
        if line is not None and change.is_decided:
            by_line[line].append(change)
    annotations = [_annotation(line, changes) for line, changes in by_line.items()]
    failures_first = sorted(annotations, key=lambda annotation: not annotation.is_failure)
    return tuple(failures_first[:MAX_ANNOTATIONS])


def _annotation(line: SourceLine, changes: Sequence[Change[Any]]) -> Annotation:
    """Write what changed in the function at a line; its name and all texts are untrusted."""
    # what improved is shown where nothing regressed
    regressed = [change for change in changes if change.verdict is Verdict.REGRESSED]
    listed_changes = regressed or changes
    lines: list[str] = []
    texts: list[str] = []
    for change in listed_changes[:_MAX_FINDINGS]:
        text = text_of(change)
        # cases of one kernel often differ in nothing but their name
        is_repeated = any(text in earlier for earlier in texts)
        texts.append(text)
        words = "the same" if is_repeated else text
        line_text = f"{name_of(change)}: {words}"
        lines.append(plain(line_text, limit=_MAX_TEXT))
    if len(listed_changes) > _MAX_FINDINGS:
        lines.append(f"and {len(listed_changes) - _MAX_FINDINGS} more")
    word = "regressed" if regressed else "improved"
    function = plain(line.function, limit=100)
    title = f"{function}: {len(listed_changes)} {word}"
    return Annotation(
        file=line.file,
        line=line.line,
        is_failure=bool(regressed),
        title=title,
        message="\n".join(lines),
    )
