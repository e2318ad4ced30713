"""The state of a view in its address.

It is read when the page opens and written when a choice is made. An unknown choice falls back to
the default, with a notice.
"""

from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.ci.messages import on_one_line
from roofwatch.dashboard.wording import code_span, shortened

_OPEN, _FOLDED = "open", "folded"
_YES, _NO = "yes", "no"


class Permalink:
    """The choices of one view, which become its address."""

    def __init__(self, view: str) -> None:
        self._view = view
        self._chosen: dict[str, list[str]] = {}

    def read(
        self,
        label: str,
        options: Sequence[str],
        *,
        parameter: str,
        default: str | None = None,
    ) -> str:
        """Return a choice of the address, which the header changes; the default is the first."""
        chosen = self._known(label, options, parameter)
        # links leave the default out; an address that adds it would be a second step back
        if not chosen:
            return default or options[0]
        self._chosen[parameter] = chosen[:1]
        return chosen[0]

    def read_some(
        self,
        label: str,
        options: Sequence[str],
        *,
        parameter: str,
    ) -> list[str]:
        """Return choices of the address, in the order of the options."""
        chosen = self._known(label, options, parameter)
        # one choice has one address, in whatever order it was made
        in_order = [value for value in options if value in chosen]
        if in_order:
            self._chosen[parameter] = in_order
        return in_order

    def keep(self, parameter: str, value: str) -> None:
        """Keep a parameter in the address as it is, also if it names nothing."""
        self._chosen[parameter] = [value]

    def _known(
        self,
        label: str,
        options: Sequence[str],
        parameter: str,
    ) -> list[str]:
        values = st.query_params.get_all(parameter)
        return self._without_unknown(label, values, options)

    @staticmethod
    def _without_unknown(
        label: str,
        values: Sequence[str],
        options: Sequence[str],
    ) -> list[str]:
        """Return the values that are options, with a notice about each of the others."""
        known_values: list[str] = []
        for value in values:
            if value in options:
                known_values.append(value)
                continue
            name = code_span(shortened(value))
            st.warning(
                f"{label} {name} not found.",
                icon=":material/link_off:",
            )
        return known_values

    def choose(
        self,
        label: str,
        options: Sequence[str],
        *,
        parameter: str,
        title: Callable[[str], str] = on_one_line,
        default: str | None = None,
        container: DeltaGenerator | None = None,
    ) -> str:
        """Choose one of `options`; the default is the first."""
        key = self._key(parameter)
        requested = self._requested(parameter, label, options)
        # the address counts first, then the choice of this session
        candidates = [st.session_state.get(key), default, options[0]]
        if requested:
            candidates[0] = requested[0]
        st.session_state[key] = next(value for value in candidates if value in options)
        drawn_in = container or st
        chosen = drawn_in.selectbox(
            label,
            options,
            key=key,
            format_func=title,
        )
        self._chosen[parameter] = [chosen]
        return chosen

    def switch(self, label: str, *, parameter: str) -> bool:
        """Choose yes or no; the default is no."""
        key = self._flag(
            parameter,
            label,
            _YES,
            _NO,
        )
        is_on = st.toggle(label, key=key)
        self._chosen[parameter] = [_YES if is_on else _NO]
        return is_on

    def unfold(
        self,
        label: str,
        show: Callable[[], None],
        *,
        parameter: str,
    ) -> None:
        """Show an expander, and its content only if it is open."""
        key = self._flag(
            parameter,
            label,
            _OPEN,
            _FOLDED,
        )
        part = st.expander(label, key=key, on_change="rerun")
        # the content is made only when it is seen
        if part.open:
            self._chosen[parameter] = [_OPEN]
            with part:
                show()

    def _flag(
        self,
        parameter: str,
        label: str,
        on: str,
        off: str,
    ) -> str:
        """Set a flag as the address asks for; return its key."""
        key = self._key(parameter)
        requested = self._requested(parameter, label, [on, off])
        if requested is not None:
            st.session_state[key] = requested == [on]
        return key

    def asked_or_chosen(self, parameter: str) -> str | None:
        """Return what the address asks for, else the previous choice, without validation."""
        requested = self._requested(parameter)
        if requested is not None:
            return requested[0]
        chosen: str | None = st.session_state.get(self._key(parameter))
        return chosen

    def write(self) -> None:
        st.session_state[self._key("written")] = self._chosen
        current: dict[str, list[str]] = {}
        for name in st.query_params:
            current[name] = st.query_params.get_all(name)
        # the same address is not written again
        if current != self._chosen:
            st.query_params.from_dict(self._chosen)

    def _requested(
        self,
        parameter: str,
        label: str = "",
        options: Sequence[str] | None = None,
    ) -> list[str] | None:
        """Return the known values that the address asks for; None if it only repeats what this view
        wrote.
        """
        values = st.query_params.get_all(parameter)
        written = st.session_state.get(self._key("written"), {})
        # an address that this view wrote itself must not undo a newer choice
        is_chosen = self._key(parameter) in st.session_state
        is_ours = is_chosen and written.get(parameter) == values
        if not values or is_ours:
            return None
        if options is None:
            return values
        return self._without_unknown(label, values, options)

    def _key(self, parameter: str) -> str:
        return f"{self._view}:{parameter}"
