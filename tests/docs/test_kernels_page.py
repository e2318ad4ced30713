"""docs/kernels.md against the suite that it describes.

After a meant change: `ROOFWATCH_UPDATE_GOLDEN=1 python -m pytest tests/docs/test_kernels_page.py`, and read what
it changed.
"""

import os
import re
from collections.abc import Callable

import pytest

from roofwatch.kernels.registry import suite
from tests.docs.kernels_page import kernel_lines, model_rows
from tests.docs.markdown import ROOT

PAGE = ROOT / "docs" / "kernels.md"


@pytest.mark.parametrize(
    ("part", "expected"),
    [("kernels", lambda: kernel_lines(suite())), ("models", model_rows)],
    ids=["kernels", "models"],
)
def test_the_page_says_of_the_suite_what_the_suite_says_of_itself(part: str, expected: Callable[[], str]) -> None:
    between = re.compile(rf"(<!-- {part}: begin -->\n).*?(<!-- {part}: end -->)", re.DOTALL)
    text = PAGE.read_text()
    written = between.sub(lambda found: f"{found[1]}\n{expected()}\n{found[2]}", text)
    if os.environ.get("ROOFWATCH_UPDATE_GOLDEN"):
        PAGE.write_text(written)
        text = written
    assert between.search(text), f"the page has no part called {part}"
    assert written == text, "run: ROOFWATCH_UPDATE_GOLDEN=1 python -m pytest tests/docs/test_kernels_page.py"
