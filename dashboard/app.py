"""Streamlit's entry script: the views, and the report of an unreachable database."""

from pathlib import Path

import streamlit as st

from roofwatch.configuration.settings import SettingsError
from roofwatch.dashboard.data import RestrictedError, UnreadServerError
from roofwatch.dashboard.logo import LOGO
from roofwatch.dashboard.navigation import FRONT_PAGE, VIEWS
from roofwatch.dashboard.wording import code_span
from roofwatch.db.errors import AgedError, StoreError

_STYLE = Path(__file__).parent / "assets" / "style.css"
# drawn here: Streamlit would fetch an icon from another host
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" width="64" height="64">'
    f"{LOGO}</svg>"
)


def show() -> None:
    st.set_page_config(
        page_title="roofwatch",
        page_icon=_ICON,
        layout="wide",
    )
    st.html(_STYLE)
    pages = [
        st.Page(
            f"views/{name}.py",
            title=VIEWS[name],
            default=name == FRONT_PAGE,
            url_path=name,
        )
        for name in VIEWS
    ]
    page = st.navigation(pages, position="hidden")
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
    except RestrictedError as error:
        st.error(f"You may not read this: {error}", icon=":material/lock:")
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
