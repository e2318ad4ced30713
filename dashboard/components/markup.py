"""HTML and SVG of ours on a page: figures that need no script, and rows that can be picked.

`st.html` removes SVG. Every text of a record must be escaped before it gets here.
"""

from collections.abc import Callable

import streamlit as st

from roofwatch.dashboard.charts.history import STYLE as HISTORY_STYLE

_STYLE = (
    HISTORY_STYLE
    + """
.rw-tip {position: fixed; z-index: 1000; pointer-events: none; max-width: 26rem;
  padding: 0.3rem 0.5rem; border-radius: 0.3rem; background: #222; color: #fff;
  font-size: 0.75rem; line-height: 1.3}
[data-pick] {cursor: pointer}
"""
)
# A figure's points have titles: the nearest one is shown at once, where a browser would wait.
_JS = """
const NEAR_PX = 24;
export default ({ data, parentElement, setTriggerValue }) => {
  const place = parentElement.querySelector(".rw-markup");
  if (place.shown !== data.html) place.innerHTML = place.shown = data.html;
  const tip = document.createElement("div");
  tip.className = "rw-tip";
  tip.hidden = true;
  place.append(tip);
  const hide = () => { tip.hidden = true; };
  const show = event => {
    const plot = event.target.closest(".rw-plot");
    let nearest, nearestPx = NEAR_PX;
    for (const point of plot?.querySelectorAll("circle, text") ?? []) {
      const box = point.getBoundingClientRect();
      const px = Math.hypot(
        box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
      if (px < nearestPx) [nearest, nearestPx] = [point, px];
    }
    const title = nearest?.querySelector("title");
    if (!title) return hide();
    tip.textContent = title.textContent;
    tip.hidden = false;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, room))}px`;
    tip.style.top = `${event.clientY + 14}px`;
  };
  const pick = event => {
    const row = event.target.closest("[data-pick]");
    if (!row || event.target.closest("a, button:not([data-pick])")) return;
    if (event.type === "keydown" && !["Enter", " "].includes(event.key)) return;
    event.preventDefault();
    setTriggerValue("picked", row.dataset.pick);
  };
  const listeners = { pointermove: show, pointerleave: hide, click: pick, keydown: pick };
  for (const [name, listen] of Object.entries(listeners)) place.addEventListener(name, listen);
  return () => {
    tip.remove();
    for (const [name, listen] of Object.entries(listeners)) place.removeEventListener(name, listen);
  };
};
"""
_markup = st.components.v2.component(
    "markup", html="<div class='rw-markup'></div>", css=_STYLE, js=_JS, isolate_styles=False
)


def show_markup(html: str, *, key: str, on_pick: Callable[[str], None] | None = None) -> None:
    """Show HTML in which every text of a record is escaped.

    Args:
        html: What is shown.
        key: Unique on the page.
        on_pick: Called with the value of `data-pick` of an element that was clicked, before the
            page is drawn again.
    """

    def picked() -> None:
        value = st.session_state[key]["picked"]
        if value is not None and on_pick is not None:
            on_pick(value)

    _markup(data={"html": html}, key=key, on_picked_change=picked)
