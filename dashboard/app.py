"""The entry script of `streamlit run`: the menu, and the one place where an unreachable database is reported."""

from __future__ import annotations

import streamlit as st

from roofwatch.dashboard.errors import UnreadServerError
from roofwatch.dashboard.logo import ICON, WORDMARK
from roofwatch.dashboard.navigation import VIEWS
from roofwatch.dashboard.wording import code_span
from roofwatch.db.errors import AgedError, StoreError
from roofwatch.settings import SettingsError

# Tables want the width that Streamlit leaves empty around a page. Its captions are paler than people with weak eyes can
# read: WCAG 2.2 asks for a contrast of 4.5. Names from records stand in code spans all over the text, so they are no
# louder than the words around them. The text of figures takes the ink of the page, light or dark.
_STYLE = """<style>
.stMainBlockContainer {padding: 4rem 2.5rem 3rem}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p {color: inherit; opacity: 1}
[data-testid="stCaptionContainer"] {opacity: 0.85}
.stMainBlockContainer :not(pre) > code {color: inherit; font-size: 0.9em}
[data-testid="stMetricValue"] {font-size: 1.6rem}
.js-plotly-plot [class*="axislayer"] text, .js-plotly-plot .infolayer text
  {fill: currentColor !important; opacity: 0.85}
.rw-scroll {overflow: auto; max-width: 100%; max-height: 1000px}
.rw-table, .rw-heat {border-collapse: collapse; font-size: 0.875rem; margin: 0}
.rw-table th, .rw-table td {border: 1px solid #8884; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top;
  max-width: 30rem; overflow-wrap: break-word}
.rw-table th {background: #8881; font-weight: 600; white-space: nowrap}
.rw-table .rw-number {text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap}
.rw-table abbr {text-decoration: underline dotted; cursor: help}
.rw-heat {border-collapse: separate; border-spacing: 2px}
.rw-heat th {font-weight: 400; padding: 0.2rem 0.6rem; border: none}
.rw-heat tbody th {text-align: right}
.rw-heat td {min-width: 10rem; height: 1.75rem; text-align: center; padding: 0; border: none; color: var(--rw-ink)}
.rw-heat td a {display: block; color: var(--rw-ink)}
.rw-row {display: grid; grid-template-columns: 5fr 2.2fr 2.8fr; gap: 0 1rem; align-items: center; font-size: 0.9rem}
.rw-row.rw-owned {grid-template-columns: 5fr 2.2fr 2.8fr 1.6fr}
.rw-row > div {min-width: 0; overflow-wrap: break-word}
.rw-row strong {font-size: 1rem}
.rw-row .rw-change {font-size: 1.4rem; font-weight: 600}
.rw-suspects {display: grid; grid-template-columns: 1.2fr 2fr 8fr; gap: 0.5rem 1rem; align-items: center}
.rw-suspects > div {min-width: 0; overflow-wrap: break-word}
.rw-bar {height: 0.5rem; border-radius: 0.25rem; background: #8884; overflow: hidden}
.rw-bar > div {height: 100%; background: #0072B2}
.rw-badge {border: 1px solid #888; border-radius: 0.4rem; padding: 0 0.35rem; font-size: 0.85rem; white-space: nowrap}
.rw-loud {border: 2px solid #D55E00; font-weight: 600}
</style>"""


def show() -> None:
    st.set_page_config(page_title="roofwatch", page_icon=ICON, layout="wide")
    st.logo(WORDMARK, size="large")
    st.html(_STYLE)
    page = st.navigation(
        [
            st.Page(f"views/{name}.py", title=entry.title, icon=entry.icon, default=number == 0, url_path=name)
            for number, (name, entry) in enumerate(VIEWS.items())
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
            "Start it with `roofwatch api`, or start this dashboard with another `--url`. The token, of the scope "
            "`read`, is what `ROOFWATCH_TOKEN` held when the dashboard was started. Then reload this page."
        )
    except (StoreError, SettingsError) as error:
        st.error(f"The database cannot be read: {code_span(str(error))}", icon=":material/database_off:")
        st.markdown(
            "Start it, or point `ROOFWATCH_DATABASE_URL` at one that runs; without that variable the dashboard uses "
            "the embedded database in `ROOFWATCH_DATA_DIR`. Then reload this page. `roofwatch db --help` has the "
            "commands."
        )


if __name__ == "__main__":
    show()
