"""Streamlit's entry script: the views, and the report of an unreachable database."""

from collections.abc import Mapping

import streamlit as st

from roofwatch.dashboard.data import UnreadServerError
from roofwatch.dashboard.wording import code_span
from roofwatch.db.errors import AgedError, StoreError
from roofwatch.settings import SettingsError

# Title and icon by the name of the file in `views/`, which is the path in the address too; the
# first is the front page.
VIEWS: Mapping[str, tuple[str, str]] = {
    "overview": ("Overview", ":material/home:"),
    "regression": ("Regression", ":material/search:"),
    "trends": ("Trends", ":material/show_chart:"),
    "compare": ("Compare", ":material/compare_arrows:"),
    "kernel": ("Kernel", ":material/memory:"),
    "run": ("Run", ":material/play_circle:"),
    "runners": ("Runners", ":material/dns:"),
    "fleet": ("Fleet economics", ":material/payments:"),
}
# Tables want the width that Streamlit leaves empty around a page. Its captions are paler than
# people with weak eyes can read: WCAG 2.2 asks for a contrast of 4.5. Names from records stand in
# code spans all over the text, so they are no louder than the words around them.
_STYLE = """<style>
.stMainBlockContainer {padding: 4rem 2.5rem 3rem}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p {color: inherit; opacity: 1}
[data-testid="stCaptionContainer"] {opacity: 0.85}
.stMainBlockContainer :not(pre) > code {color: inherit; font-size: 0.9em; padding: 0; background: none}
[data-testid="stMetricValue"] {font-size: 1.6rem}
[data-testid="stPageLink"] p {text-decoration: underline}
[class*="st-key-row-"] {padding: 0.35rem 0.8rem}
.rw-row {display: grid; grid-template-columns: 6fr 3fr 140px 5fr 6fr; gap: 0 1rem; align-items: center;
  font-size: 0.8rem; line-height: 1.35; overflow-wrap: anywhere}
.rw-row > div {min-width: 0}
.rw-cut {overflow: hidden; text-overflow: ellipsis; white-space: nowrap}
.rw-what b, .rw-size b {font-size: 1.05rem}
.rw-badge {border: 1px solid #888; border-radius: 0.6rem; padding: 0 0.4rem; margin-right: 0.3rem; font-size: 0.75rem;
  white-space: nowrap}
.rw-map {border-collapse: collapse; width: 100%; font-size: 0.875rem}
.rw-map th, .rw-map td {border: 1px solid rgba(128, 128, 128, 0.3); padding: 0.25rem 0.6rem; text-align: left}
.rw-map a {color: inherit}
.rw-stale {background-image: repeating-linear-gradient(45deg, rgba(128, 128, 128, 0.25) 0 2px, transparent 2px 7px)}
.stMainBlockContainer a:focus-visible, .stMainBlockContainer button:focus-visible {outline: 2px solid #0072B2}
@media (max-width: 700px) {
  .stMainBlockContainer {padding: 4rem 1rem 2rem}
  .rw-row {grid-template-columns: 1fr}
  .rw-cut {white-space: normal}
  .rw-map {display: block; overflow-x: auto}
}
</style>"""
# The logo: a roof over two points. The favicon is drawn here too: Streamlit would fetch an icon
# from another host.
_SVG = '<svg xmlns="http://www.w3.org/2000/svg"'
_ROOF = (
    '<path d="M2 24 L14 8 L30 8" fill="none" stroke="#D55E00" stroke-width="3.5" '
    'stroke-linecap="round"'
    ' stroke-linejoin="round"/>'
    '<circle cx="15" cy="19" r="3.2" fill="#0072B2"/>'
    '<rect x="22" y="13.5" width="6" height="6" fill="#56B4E9"/>'
)
_ICON = f'{_SVG} viewBox="0 0 32 32" width="64" height="64">{_ROOF}</svg>'
# mid-grey: readable on a light and on a dark page
_WORDMARK = (
    f'{_SVG} viewBox="0 0 150 32" width="300" height="64">{_ROOF}'
    '<text x="38" y="23" font-family="sans-serif" font-size="20" font-weight="600" '
    'fill="#808495">roofwatch</text>'
    "</svg>"
)


def show() -> None:
    st.set_page_config(page_title="roofwatch", page_icon=_ICON, layout="wide")
    st.logo(_WORDMARK, size="large")
    st.html(_STYLE)
    front_page = next(iter(VIEWS))
    page = st.navigation(
        [
            st.Page(
                f"views/{name}.py",
                title=title,
                icon=icon,
                default=name == front_page,
                url_path=name,
            )
            for name, (title, icon) in VIEWS.items()
        ],
        position="top",
    )
    try:
        page.run()
    except AgedError as error:
        st.info(code_span(str(error)), icon=":material/inventory_2:")
    except UnreadServerError as error:
        st.error(f"The server cannot be read: {code_span(str(error))}", icon=":material/cloud_off:")
        st.markdown(
            "Start it with `roofwatch api`, or restart this dashboard with another `--url`. The "
            "token "
            "comes from `ROOFWATCH_TOKEN` and needs the scope `read`. Then reload this page."
        )
    except (StoreError, SettingsError) as error:
        st.error(
            f"The database cannot be read: {code_span(str(error))}", icon=":material/database_off:"
        )
        st.markdown(
            "Start it, or set `ROOFWATCH_DATABASE_URL`; without it the dashboard uses the embedded "
            "database in `ROOFWATCH_DATA_DIR`. Then reload this page. See `roofwatch db --help` "
            "for "
            "commands."
        )


if __name__ == "__main__":
    show()
