"""A sentence of ours with words of others in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Remark:
    """Keeps the foreign words apart, since they come from records that anybody may have written: whoever prints the
    sentence quotes them in the way that is safe there.
    """

    template: str
    """With one `{}` for each word."""
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.quoted(str)

    def quoted(self, quote: Callable[[str], str]) -> str:
        return self.template.format(*map(quote, self.words))


def visible(text: str) -> str:
    """The same text with `�` for each character that is not printed: what drives a terminal, what ends a line, what
    reverses the direction of writing.
    """
    return "".join(character if character.isprintable() else "�" for character in text)


def on_one_line(text: str) -> str:
    """The visible text with one blank for each run of white space."""
    return visible(" ".join(text.split()))
