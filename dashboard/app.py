"""The entry script of `streamlit run`: the menu, and the one place where an unreachable database is reported."""

from __future__ import annotations

import streamlit as st

from dashboard.logo import ICON, WORDMARK
from dashboard.wording import code_span
from db.errors import StoreError
from roofwatch.settings import SettingsError

# Tables want the width that Streamlit leaves empty around a page. Its captions are paler than people with weak eyes can
# read: WCAG 2.2 asks for a contrast of 4.5.
_STYLE = """<style>
.stMainBlockContainer {padding: 4rem 2.5rem 3rem}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p {color: inherit; opacity: 1}
[data-testid="stCaptionContainer"] {opacity: 0.85}
</style>"""


def show() -> None:
    st.set_page_config(page_title="roofwatch", page_icon=ICON, layout="wide")
    st.logo(WORDMARK, size="large")
    st.html(_STYLE)
    page = st.navigation(
        [
            st.Page("views/overview.py", title="Overview", icon=":material/home:", default=True),
            st.Page("views/regression.py", title="Regression", icon=":material/search:", url_path="regression"),
            st.Page("views/trends.py", title="Trends", icon=":material/show_chart:", url_path="trends"),
            st.Page("views/compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
            st.Page("views/kernel.py", title="Kernel", icon=":material/memory:", url_path="kernel"),
            st.Page("views/run.py", title="Run", icon=":material/play_circle:", url_path="run"),
            st.Page("views/runners.py", title="Runners", icon=":material/dns:", url_path="runners"),
            st.Page("views/fleet.py", title="Fleet economics", icon=":material/payments:", url_path="fleet"),
        ],
        position="top",
    )
    try:
        page.run()
    except (StoreError, SettingsError) as error:
        st.error(f"The database cannot be read: {code_span(str(error))}", icon=":material/database_off:")
        st.markdown(
            "Start it, or point `ROOFWATCH_DATABASE_URL` at one that runs; without that variable the dashboard uses "
            "the embedded database in `ROOFWATCH_DATA_DIR`. Then reload this page. `roofwatch db --help` has the "
            "commands."
        )


if __name__ == "__main__":
    show()
