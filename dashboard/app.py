"""The entry script of `streamlit run`: the menu, and the one place where an unreachable database is reported."""

from __future__ import annotations

import streamlit as st

from dashboard.logo import ICON, WORDMARK
from dashboard.navigation import VIEWS
from dashboard.wording import code_span
from db.errors import AgedError, StoreError
from roofwatch.settings import SettingsError

# Tables want the width that Streamlit leaves empty around a page. Its captions are paler than people with weak eyes can
# read: WCAG 2.2 asks for a contrast of 4.5. Names from records stand in code spans all over the text, so they are no
# louder than the words around them.
_STYLE = """<style>
.stMainBlockContainer {padding: 4rem 2.5rem 3rem}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p {color: inherit; opacity: 1}
[data-testid="stCaptionContainer"] {opacity: 0.85}
.stMainBlockContainer :not(pre) > code {color: inherit; font-size: 0.9em}
[data-testid="stMetricValue"] {font-size: 1.6rem}
[class*="st-key-row-"] [data-testid="stText"] {font-size: 0.9rem}
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
    except (StoreError, SettingsError) as error:
        st.error(f"The database cannot be read: {code_span(str(error))}", icon=":material/database_off:")
        st.markdown(
            "Start it, or point `ROOFWATCH_DATABASE_URL` at one that runs; without that variable the dashboard uses "
            "the embedded database in `ROOFWATCH_DATA_DIR`. Then reload this page. `roofwatch db --help` has the "
            "commands."
        )


if __name__ == "__main__":
    show()
