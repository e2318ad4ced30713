"""Named queries: answered by a database session, or by a server that receives the parameters as JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic_core import to_json

if TYPE_CHECKING:  # a client of a server has no SQLAlchemy
    from sqlalchemy.orm import Session

P = ParamSpec("P")
A = TypeVar("A")

# Parameters come from anybody with a token, so their types limit them.
Word = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
Words = Annotated[tuple[Word, ...], Field(max_length=10_000)]
RunIds = Annotated[tuple[UUID, ...], Field(max_length=10_000)]
CaseIds = Annotated[frozenset[Word], Field(max_length=100_000)]
Limit = Annotated[int, Field(ge=1, le=10_000)]


@dataclass(frozen=True)
class ResourceScope:
    """What a question is about; the client must be allowed to see all of it."""

    projects: Collection[str] = ()
    run_ids: Collection[UUID] = ()
    regression_ids: Collection[UUID] = ()
    """Regressions whose bisections are read."""


@dataclass(frozen=True)
class Question(Generic[P, A]):
    """A query whose parameters and answer are validated by its annotations."""

    ask: Callable[Concatenate[Session, P], A]
    scope: Callable[[Any], ResourceScope]
    """From the parameters, as attributes."""
    known_projects: str | None = None
    """Parameter that a server sets to the projects that the client may see."""

    @property
    def name(self) -> str:
        return self.ask.__name__.removeprefix("_")

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """A model of the parameters, without the session."""
        _, *parameters = inspect.signature(self.ask).parameters.values()
        fields: dict[str, Any] = {
            one.name: (self._hints[one.name], ... if one.default is inspect.Parameter.empty else one.default)
            for one in parameters
        }
        return create_model(self.name, __config__=ConfigDict(extra="forbid", frozen=True), **fields)

    @cached_property
    def answer(self) -> TypeAdapter[A]:
        return TypeAdapter(self._hints["return"])

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.ask, include_extras=True)

    def to_json(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        """Write the parameters as JSON."""
        _, *arguments = inspect.signature(self.ask).bind(None, *args, **kwargs).arguments.items()
        return to_json(dict(arguments))

    def ask_with(self, session: Session, parameters: BaseModel) -> A:
        """Answer with parameters from JSON."""
        ask: Callable[..., A] = self.ask
        return ask(session, **{name: getattr(parameters, name) for name in type(parameters).model_fields})


def answer_to_json(answer: object) -> bytes:
    """Write an answer as JSON, with NaN and infinities as strings."""
    return to_json(answer, inf_nan_mode="strings")
