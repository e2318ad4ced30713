"""Which kernels the calls of one case launched, and where the device's time went, as the record has it."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import CaseProfile
from roofwatch.dashboard.frame import View
from roofwatch.dashboard.tables.markup import Column
from roofwatch.dashboard.tables.profile import profile_table
from roofwatch.dashboard.tables.table import show_table

_FORMATS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("time of a call", "mean", "longest"), format_ns),
    **dict.fromkeys(("share", "occupancy"), "{:.1%}".format),
    **dict.fromkeys(("bytes", "shared memory"), format_bytes),
    **dict.fromkeys(("of a call", "registers"), "{:.3g}".format),
}


def show_profile(view: View, record: RunRecord) -> None:
    """The profile of one case and implementation, to choose among those of a run."""
    st.subheader("What a case launches", anchor=False)
    if not record.profiles:
        st.text("No case was profiled in this run. To have it in the next: roofwatch run --profile")
        return
    profiles = {f"{profile.case_id} {profile.implementation}": profile for profile in record.profiles}
    profile = profiles[view.link.choose("Profiled", list(profiles), parameter="profiled")]
    st.text(_summary(profile))
    table = profile_table(profile)
    show_table(
        table,
        formats={name: write for name, write in _FORMATS.items() if name in table},
        columns={
            "share": Column(help="Of the time in which anything was under way."),
            "of a call": Column(help="How many of them a call launches."),
            "bytes": Column(help="Copied or filled, over all calls."),
            "grid": Column(help="Of the first launch, as the columns after it."),
            "occupancy": Column(help="By torch's own estimate; short kernels honestly have 0."),
        },
    )
    st.caption(
        "Under a profiler and on a hot cache: it says what was launched, and what share of the time each took. Its "
        "times compare with no measurement's."
    )


def _summary(profile: CaseProfile) -> str:
    calls = f"{profile.call_count} call{'' if profile.call_count == 1 else 's'}"
    idle = f", idle {profile.idle_ns / profile.span_ns:.1%} of it" if profile.span_ns else ""
    delay = (
        ""
        if profile.launch_delay_ns is None
        else f"; from the call of a launch to the start of its kernel, {format_ns(profile.launch_delay_ns)}"
    )
    return f"{calls} in {format_ns(profile.span_ns)}{idle}{delay}"
