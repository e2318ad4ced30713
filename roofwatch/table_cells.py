"""Cells and captions that tables share."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from roofwatch.ci.messages import visible
from roofwatch.model.machine import Outcome

_VERDICT_STYLE = {"regressed": "bold red", "improved": "green", "inconclusive": "yellow"}
_OUTCOME_STYLE = {Outcome.OK: "green", Outcome.UNSUPPORTED: "dim"}


def outcome_text(outcome: Outcome) -> Text:
    return Text(str(outcome), style=f"{_OUTCOME_STYLE.get(outcome, 'red')} link {outcome.url}")


def shorten_message(message: str) -> str:
    return "\n".join(visible(line) for line in message[:300].splitlines())


def set_caption(table: Table, messages: Sequence[str]) -> None:
    if messages:
        table.caption = Text("\n".join(map(shorten_message, messages)))
        table.caption_justify = "left"


def verdict(word: str) -> Text:
    return Text(visible(word), _VERDICT_STYLE.get(word, ""))


def joined(values: Iterable[str]) -> str:
    """Different values in their first order."""
    return " ".join(dict.fromkeys(values))
