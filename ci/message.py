"""Messages that contain untrusted text. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Remark:
    """A sentence whose words from records are kept apart, to be quoted by whoever prints it."""

    template: str
    """With one `{}` for each word."""
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.quoted(str)

    def quoted(self, quote: Callable[[str], str]) -> str:
        return self.template.format(*map(quote, self.words))


def visible(text: str) -> str:
    """Replace characters that are not printable, such as terminal controls and bidirectional marks, by `�`."""
    return "".join(character if character.isprintable() else "�" for character in text)


def on_one_line(text: str) -> str:
    """Make the text visible, with one blank for each run of white space."""
    return visible(" ".join(text.split()))
