"""Values that several tables of the file of alert rules share. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
)

from roofwatch.model.metrics import parse_amount


def _percentage(value: object) -> float:
    """Read `"5%"` as 0.05. A bare number is refused: 5 could mean 5 % or five times."""
    if not isinstance(value, str):
        raise ValueError('write a percentage in quotes, such as "5%"')  # noqa: TRY004 -- pydantic reports a ValueError
    return parse_amount(value, "share")


def _known_channels(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Refuse a channel that the file does not define."""
    channels = info.context
    if channels is None:  # the channels themselves are not valid, which is reported already
        return names
    for name in names:
        if name not in channels:
            raise ValueError(f"unknown channel {name!r}; there is: {', '.join(channels) or 'none'}")
    return names


def suggestion(word: str, words: Iterable[str]) -> str:
    """Name the most similar of some words; empty if none is similar."""
    near = get_close_matches(word, words, n=1)
    if not near:
        return ""
    return f"; did you mean {near[0]!r}?"


Name = Annotated[str, StringConstraints(pattern=r"^[\w][\w. -]{0,59}$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
ChannelNames = Annotated[tuple[Name, ...], AfterValidator(_known_channels)]
Percentage = Annotated[float, BeforeValidator(_percentage), Field(ge=0)]
Limit = Annotated[float, Field(gt=0)]


class RulesTable(BaseModel):
    """A table of the file: an unknown key is a fault."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def matches(text: str, patterns: Iterable[str]) -> bool:
    """Whether a text matches any of some patterns with `*` and `?`."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)
