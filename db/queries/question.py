"""A question to the store that has a name: a session answers it, and so does a door in front of the store, which is
told what is asked as a document, and whose business that is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model
from pydantic_core import to_json

if TYPE_CHECKING:  # who asks a server has no SQLAlchemy
    from sqlalchemy.orm import Session

P = ParamSpec("P")
A = TypeVar("A")


@dataclass(frozen=True)
class Concerned:
    """What a question is about: whoever may not see one of these gets no answer."""

    projects: Collection[str] = ()
    """By name."""
    run_ids: Collection[str] = ()
    bisected: Collection[UUID] = ()
    """Regressions of whose bisections it is asked."""


@dataclass(frozen=True)
class Question(Generic[P, A]):
    """What is asked is checked by the types of the function's parameters, what is answered by that of what it gives."""

    ask: Callable[Concatenate[Session, P], A]
    """Answers from the store."""
    name: str
    concerned: Callable[[Any], Concerned]
    """Of what is asked."""
    known_projects: str | None
    """The parameter that takes the projects whose names the answer may tell, where there is one. A door fills it in."""

    @cached_property
    def asked(self) -> type[BaseModel]:
        """The parameters by their names, the session left out."""
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

    def document(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        """What is asked, as JSON. Whether it may be is for whoever answers to say."""
        signature = inspect.signature(self.ask)
        said = dict(signature.bind(None, *args, **kwargs).arguments)
        del said[next(iter(signature.parameters))]  # the session
        return to_json(said)

    def ask_by(self, session: Session, asked: BaseModel) -> A:
        """The answer to what was said in a document."""
        ask: Callable[..., A] = self.ask
        return ask(session, **{name: getattr(asked, name) for name in type(asked).model_fields})


def question(
    concerned: Callable[[Any], Concerned], *, known_projects: str | None = None
) -> Callable[[Callable[Concatenate[Session, P], A]], Question[P, A]]:
    """Make a function of a session a question, by its name and its annotations."""

    def declare(ask: Callable[Concatenate[Session, P], A]) -> Question[P, A]:
        return Question(ask, ask.__name__, concerned, known_projects)

    return declare


def written(answer: object) -> bytes:
    """An answer as JSON, of which a question's `answer` makes the same again. What is no number of JSON is a string:
    NaN and the infinities.
    """
    return to_json(answer, inf_nan_mode="strings")
