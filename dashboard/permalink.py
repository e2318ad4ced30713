"""The state of a view lives in its address: read when the page opens, written back when a choice is made.

A choice that the address asks for and that does not exist falls back to the default, with a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode, urljoin

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.dashboard.wording import code_span, shortened

T = TypeVar("T")
_OPEN, _FOLDED = "open", "folded"


class Permalink:
    """The choices of one view. Everything chosen through it is part of the address after `write`."""

    def __init__(self, view: str) -> None:
        self._view = view
        self._chosen: dict[str, list[str]] = {}

    def choose(
        self,
        label: str,
        options: Sequence[str],
        *,
        parameter: str,
        title: Callable[[str], str] = str,
        default: str | None = None,
        place: DeltaGenerator | None = None,
    ) -> str:
        """One of `options`, which must not be empty; the first if there is no default."""
        key = self._key(parameter)
        asked = self._asked(parameter)
        if asked is not None:
            known = [value for value in asked if value in options]
            if known:
                st.session_state[key] = known[0]
            else:
                _notice(label, asked[0])
        if st.session_state.get(key) not in options:
            st.session_state[key] = default if default in options else options[0]
        chosen = (place or st).selectbox(label, options, key=key, format_func=title)
        self._chosen[parameter] = [chosen]
        return chosen

    def choose_many(
        self,
        label: str,
        options: Sequence[str],
        *,
        parameter: str,
        title: Callable[[str], str] = str,
        place: DeltaGenerator | None = None,
    ) -> list[str]:
        """Some of `options`, in their order. All of them at first, and then the address need not name them."""
        key, known_key = self._key(parameter), f"{self._key(parameter)}:options"
        asked = self._asked(parameter)
        if asked is not None:
            for value in asked:
                if value not in options:
                    _notice(label, value)
            st.session_state[key] = [value for value in asked if value in options]
        elif key in st.session_state and st.session_state[key] != st.session_state.get(known_key):
            st.session_state[key] = [value for value in st.session_state[key] if value in options]
        else:
            # all were chosen before the options changed: still all
            st.session_state[key] = list(options)
        st.session_state[known_key] = list(options)
        chosen = (place or st).multiselect(label, options, key=key, format_func=title)
        if len(chosen) < len(options):
            self._chosen[parameter] = [value for value in options if value in chosen]
        return [value for value in options if value in chosen]

    def narrow(
        self,
        label: str,
        options: Sequence[str],
        *,
        parameter: str,
        default: Sequence[str] = (),
        title: Callable[[str], str] = str,
        placeholder: str = "all",
        place: DeltaGenerator | None = None,
    ) -> list[str]:
        """Any of `options`. None of them means what the placeholder says, and then the address does not name them."""
        key = self._key(parameter)
        asked = self._asked(parameter)
        if asked is not None:
            for value in asked:
                if value not in options:
                    _notice(label, value, instead="showing all")
        wanted = asked if asked is not None else st.session_state.get(key, default)
        st.session_state[key] = [value for value in wanted if value in options]
        chosen = (place or st).multiselect(label, options, key=key, format_func=title, placeholder=placeholder)
        if chosen:
            self._chosen[parameter] = chosen
        return chosen

    def choose_some(
        self,
        label: str,
        options: Sequence[str],
        *,
        parameter: str,
        default: str | None = None,
        title: Callable[[str], str] = str,
        place: DeltaGenerator | None = None,
    ) -> list[str]:
        """One of `options`, which must not be empty, or several, in their order: the default, or else the first, where
        a reader leaves none.
        """
        key = self._key(parameter)
        asked = self._asked(parameter)
        if asked is not None:
            for value in asked:
                if value not in options:
                    _notice(label, value)
        wanted = asked if asked is not None else st.session_state.get(key, ())
        begun = default if default in options else options[0]
        st.session_state[key] = [value for value in wanted if value in options] or [begun]
        chosen = (place or st).multiselect(label, options, key=key, format_func=title)
        self._chosen[parameter] = [value for value in options if value in chosen]
        return self._chosen[parameter]

    def switch(self, label: str, *, parameter: str, place: DeltaGenerator | None = None) -> bool:
        """Yes or no, no at first; `yes` and `no` in the address."""
        key = self._key(parameter)
        asked = self._asked(parameter)
        if asked is not None:
            if asked[0] not in {"yes", "no"}:
                _notice(label, asked[0])
            st.session_state[key] = asked[0] == "yes"
        is_on = (place or st).toggle(label, key=key)
        self._chosen[parameter] = ["yes" if is_on else "no"]
        return is_on

    def unfold(self, label: str, *, parameter: str) -> DeltaGenerator | None:
        """A part of the view that is folded at first; None as long as it is, so that nothing is read for it."""
        key = self._key(parameter)
        asked = self._asked(parameter)
        if asked is not None:
            if asked[0] not in {_OPEN, _FOLDED}:
                _notice(label, asked[0])
            st.session_state[key] = asked[0] == _OPEN
        part = st.expander(label, key=key, on_change="rerun")
        if part.open or asked is not None or self._was_written(parameter):
            self._chosen[parameter] = [_OPEN if part.open else _FOLDED]
        return part if part.open else None

    def pin(self, *, parameter: str, picked: str | None) -> str | None:
        """What the reader picked on a figure last, or what the address asks for; None where there is neither.

        Args:
            parameter: Its name in the address.
            picked: On the figure, now; None where nothing is.
        """
        key = self._key(parameter)
        asked = self._asked(parameter)
        if picked is not None:
            st.session_state[key] = picked
        elif asked is not None:
            st.session_state[key] = asked[0]
        pinned: str | None = st.session_state.get(key)
        if pinned is not None:
            self._chosen[parameter] = [pinned]
        return pinned

    def choose_next(self, parameter: str, value: str) -> None:
        """Choose for the reader, by what they did on a figure: in a callback, before the view is drawn again."""
        st.session_state[self._key(parameter)] = value

    def asked_or_chosen(self, parameter: str) -> str | None:
        """What the address asks for, or else what was chosen before; known or not."""
        asked = self._asked(parameter)
        chosen: str | None = st.session_state.get(self._key(parameter))
        return chosen if asked is None else asked[0]

    def address_of(self, view: str, **choices: str) -> str:
        """Where another view shows certain choices, for a link in a table."""
        return f"{urljoin(st.context.url or '/', view)}?{urlencode(choices)}"

    def write(self) -> None:
        """Put the choices into the address. What the view did not ask about leaves it."""
        for parameter, values in self._chosen.items():
            st.session_state[self._written_key(parameter)] = values
        if {name: st.query_params.get_all(name) for name in st.query_params} != self._chosen:
            st.query_params.from_dict(self._chosen)

    def _asked(self, parameter: str) -> list[str] | None:
        """What the address asks for, unless it only repeats what this view wrote there."""
        values = st.query_params.get_all(parameter)
        is_ours = (
            self._key(parameter) in st.session_state and st.session_state.get(self._written_key(parameter)) == values
        )
        return None if not values or is_ours else values

    def _was_written(self, parameter: str) -> bool:
        return self._written_key(parameter) in st.session_state

    def _key(self, parameter: str) -> str:
        return f"{self._view}:{parameter}"

    def _written_key(self, parameter: str) -> str:
        return f"{self._view}:{parameter}:written"


def _notice(label: str, asked: str, *, instead: str = "showing another") -> None:
    st.warning(
        f"The address asks for the {label.lower()} {code_span(shortened(asked))}, which is not here: {instead}.",
        icon=":material/link_off:",
    )
