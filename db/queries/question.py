"""Named queries: answered by a database session, or by a server that receives the parameters as JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, get_type_hints
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


SUBJECTS = frozenset({"project", "trend", "run_id", "base_id", "head_id", "run_ids", "regression_id"})


@dataclass(frozen=True)
class Subjects:
    """The projects, runs and regressions that a question is about."""

    projects: frozenset[str]
    run_ids: frozenset[UUID]
    regression_ids: frozenset[UUID]

    @classmethod
    def of(cls, asked: BaseModel) -> Self:
        """Collect them from parameters by name.

        Raises:
            TypeError: there is no such parameter.
        """
        given = {name: getattr(asked, name) for name in SUBJECTS.intersection(type(asked).model_fields)}
        if not given:
            raise TypeError(f"{type(asked).__name__}: no parameter says what it is about")
        keys = [given["trend"], *given["trend"].keys] if "trend" in given else []
        run_ids = {given[name] for name in ("run_id", "base_id", "head_id") if name in given}
        return cls(
            projects=frozenset({given[name] for name in ("project",) if name in given} | {key.project for key in keys}),
            run_ids=frozenset(run_ids.union(given.get("run_ids", ()))),
            regression_ids=frozenset({given["regression_id"]} if "regression_id" in given else ()),
        )


@dataclass(frozen=True)
class Question(Generic[P, A]):
    """A query whose parameters and answer are validated by its annotations.

    The names of its parameters say what it is about, and the client must be allowed to see all of it: see `Subjects`.
    """

    ask: Callable[Concatenate[Session, P], A]

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
        _, *arguments = inspect.signature(self.ask).bind(None, *args, **kwargs).arguments.items()
        return to_json(dict(arguments))


def answer_to_json(answer: object) -> bytes:
    """Write an answer as JSON, with NaN and infinities as strings."""
    return to_json(answer, inf_nan_mode="strings")
