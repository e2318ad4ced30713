"""Signing in and out by Streamlit's own login, and who is there."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.dashboard.access.rights import Person, person_of
from roofwatch.dashboard.wording import code_span, shortened
from roofwatch.settings import load_settings


def person_here() -> Person | None:
    """Who signed in; None without."""
    return person_of(st.user.to_dict()) if st.user.get("is_logged_in", False) else None


def show_sign_in(place: DeltaGenerator) -> None:
    """A button to sign in or out, where signing in is set up."""
    if load_settings().sign_in_issuer is None:
        return
    person = person_here()
    if person is None:
        place.button("Sign in", icon=":material/login:", on_click=st.login)
        return
    place.caption(f"Signed in as {code_span(shortened(person.shown_as, length=60))}")
    place.button("Sign out", icon=":material/logout:", on_click=st.logout)
