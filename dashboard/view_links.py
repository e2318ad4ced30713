"""Links from view to view. Pure.

A link that Streamlit draws stays in the session: the page is there, and only what it shows is asked for. For a link in
a piece of HTML a browser would load the whole page anew. So the page follows these itself, as when a reader goes back:
it tells Streamlit that the address is another one now. They stay addresses that can be copied and opened in a new tab;
with a key held down that asks for one, so can Streamlit's own.

A view that is opened by one of Streamlit's own links writes all its choices into the address, which would be a second
step back for one step forth: until the reader chooses something it is the same step.
"""

from __future__ import annotations

from html import escape

_CLASS = "rw-view"
SCRIPT = f"""<script>addEventListener("click",event=>{{
const link=event.target.closest("a[href]");
if(!link||link.origin!==location.origin||event.button)return;
if(event.ctrlKey||event.metaKey||event.shiftKey||event.altKey)event.stopPropagation();
else if(link.classList.contains("{_CLASS}")){{
event.preventDefault();history.pushState({{}},"",link.href);dispatchEvent(new PopStateEvent("popstate"))}}
}},true);
{{
const push=history.pushState;
let isOpening=true;
history.pushState=(state,title,address)=>{{
const isHere=new URL(address,location.href).pathname===location.pathname;
if(isHere&&isOpening)history.replaceState(state,title,address);else push.call(history,state,title,address);
isOpening=!isHere}};
for(const chosen of ["pointerdown","keydown"])addEventListener(chosen,()=>{{isOpening=false}},true)
}}</script>"""
"""Of every page."""


def view_link_html(address: str, text: str) -> str:
    """The text as a link to a view."""
    return f'<a class="{_CLASS}" href="{escape(address)}">{escape(text)}</a>'
