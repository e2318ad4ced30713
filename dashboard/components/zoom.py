"""The range of commits to which a reader zooms a figure."""

from collections.abc import Callable, Sequence

import streamlit as st

_KEY = "zoom"
# `on` of a figure is Plotly's public interface; a double click is reported before the range that it restores
_REPORT_JS = """
export default ({ setTriggerValue }) => {
  let timer, isReset = false;
  const watch = event => {
    const figure = event.target.closest?.(".js-plotly-plot");
    if (!figure?.on || figure.isWatched) return;
    figure.isWatched = true;
    const report = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        setTriggerValue("range", isReset ? [] : figure.layout.xaxis.range);
        isReset = false;
      }, 300);
    };
    figure.on("plotly_doubleclick", () => { isReset = true; report(); });
    figure.on("plotly_relayout", change => {
      if (Object.keys(change).some(name => name.startsWith("xaxis."))) report();
    });
  };
  document.addEventListener("pointerdown", watch, true);
  return () => document.removeEventListener("pointerdown", watch, true);
};
"""
_report_range = st.components.v2.component("report_range", js=_REPORT_JS)


def watch_zoom(on_zoom: Callable[[Sequence[float]], None]) -> None:
    """Call back with both ends of the x axis after a reader dragged over a figure; empty after a double click."""

    def report() -> None:
        shown = st.session_state[_KEY]["range"]
        if shown is not None:
            on_zoom(shown)

    _report_range(key=_KEY, height=1, on_range_change=report)
