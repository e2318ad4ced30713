"""Text of others, from a record or a repository, without what does not show. Pure."""

from __future__ import annotations


def visible(text: str) -> str:
    """The same text with `�` for each character that is not printed: what drives a terminal, what ends a line, what
    reverses the direction of writing.
    """
    return "".join(character if character.isprintable() else "�" for character in text)


def on_one_line(text: str) -> str:
    """The visible text with one blank for each run of white space."""
    return visible(" ".join(text.split()))
