"""The parts of a report on one commit: several runners or suites become one comment and one check.

Pure. The hidden state of a comment has name, commit, conclusion and number of lines of each part,
whose texts end the comment in this order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.forges.check_run import Conclusion
from roofwatch.ci.forges.comment import PartState, read_state, without_acceptance
from roofwatch.ci.messages import code, listed, plain

UNNAMED = "default"
"""Shown for the part without a name."""
_SEVERITY = (Conclusion.FAILURE, Conclusion.NEUTRAL, Conclusion.SUCCESS)
_MARKS = {
    Conclusion.FAILURE: "❌",
    Conclusion.NEUTRAL: "⚪",
    Conclusion.SUCCESS: "✅",
}
_MAX_TEXT = 18_000
"""Characters of one of several parts; together they fit into a comment."""
_HEADING = "### "


@dataclass(frozen=True)
class Part:
    """The report of one runner or suite."""

    state: PartState
    text: str
    """Markdown."""

    @property
    def shown_name(self) -> str:
        return self.state.name or UNNAMED


@dataclass(frozen=True)
class Merged:
    """What one comment and one check say about all parts."""

    conclusion: Conclusion
    title: str
    text: str
    parts: tuple[PartState, ...]


def earlier_parts(
    body: str,
    head_sha: str,
    names: Iterable[str],
) -> list[Part]:
    """Return the parts of a comment of ours about a commit, without those of some names."""
    replaced = set(names)
    lines = without_acceptance(body).rstrip().splitlines()
    parts: list[Part] = []
    for state in reversed(read_state(body).parts):
        first_line = len(lines) - state.line_count
        text = "\n".join(lines[first_line:])
        # a blank line stands between two parts
        heading_line = max(0, first_line - 1)
        del lines[heading_line:]
        if state.head_sha == head_sha and state.name not in replaced:
            parts.append(Part(state, text))
    return parts[::-1]


def merge(parts: Sequence[Part], expected: Sequence[str] = ()) -> Merged:
    """Write the comment and the check of some parts, the worst first, with what is missing.

    A single part without a name is written as it is.
    """
    # the worst part decides, so it comes first
    ordered = sorted(parts, key=lambda part: _SEVERITY.index(part.state.conclusion))
    present = {part.state.name for part in parts}
    missing = [name for name in expected if name not in present]
    worst = ordered[0]
    # most repositories have one job, and need no heading
    if len(parts) == 1 and not expected and not worst.state.name:
        return _only(worst)
    conclusion = worst.state.conclusion
    # a success of some jobs is no success of all
    if missing and conclusion is Conclusion.SUCCESS:
        conclusion = Conclusion.NEUTRAL
    words = f": {worst.state.title}"
    if missing:
        words += f"; missing: {listed(missing)}"
    name = code(worst.shown_name)
    short_words = plain(words, limit=200)
    mark = _MARKS[conclusion]
    blocks = [f"{_HEADING}{mark} {name}{short_words}"]
    if missing:
        names = listed(map(code, missing))
        blocks.append(f"**Missing:** {names}: no result of this commit yet.")
    is_only = len(parts) == 1
    texts = [_block(part, is_only=is_only) for part in ordered]
    parts_with_text = zip(ordered, texts, strict=True)
    states = [_counted(part.state, text) for part, text in parts_with_text]
    return Merged(
        conclusion=conclusion,
        title=f"{worst.shown_name}{words}",
        text="\n\n".join([*blocks, *texts]),
        parts=tuple(states),
    )


def _only(part: Part) -> Merged:
    text = part.text.strip()
    state = _counted(part.state, text)
    return Merged(
        conclusion=state.conclusion,
        title=state.title,
        text=text,
        parts=(state,),
    )


def _counted(state: PartState, text: str) -> PartState:
    return state.model_copy(update={"line_count": len(text.splitlines())})


def _block(part: Part, *, is_only: bool) -> str:
    """Write a part with a heading that has its name."""
    text = part.text.strip()
    if len(text) > _MAX_TEXT and not is_only:
        whole_lines = text[:_MAX_TEXT].rpartition("\n")[0]
        text = f"{whole_lines}\n\n_The rest is on the page of the run._"
        # a fold that was cut off would hide the parts below
        text += "\n\n</details>" * (text.count("<details>") - text.count("</details>"))
    name = code(part.shown_name)
    if text.startswith(f"#### {name}"):  # kept from an earlier comment
        return text
    if text.startswith(_HEADING):
        return f"#### {name}: {text.removeprefix(_HEADING)}"
    return f"#### {name}\n\n{text}"
