"""Links of the documents lead somewhere."""

from pathlib import Path

import pytest

from tests.docs.markdown import DOCUMENTS, ROOT, anchors, code_spans, name_of, targets

LINKS = [
    (document, target) for document in DOCUMENTS for target in targets(document) if not target.startswith("https://")
]


@pytest.mark.parametrize(("document", "target"), LINKS, ids=[f"{name_of(page)}-{target}" for page, target in LINKS])
def test_an_internal_link_resolves(document: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    page = (document.parent / path).resolve() if path else document

    assert page.exists(), target
    assert ROOT in page.parents
    if anchor:
        assert anchor in anchors(page)


# a decision names the files of its day
CURRENT = [document for document in DOCUMENTS if document.parent.name != "decisions"]


@pytest.mark.parametrize("document", CURRENT, ids=name_of)
def test_a_file_that_is_named_exists(document: Path) -> None:
    made_by_verbs = {".venv", "build"}
    tops = {path.name for path in ROOT.iterdir()} - made_by_verbs
    named = [span.split("::")[0] for span in code_spans(document) if "/" in span and span.split("/")[0] in tops]

    assert [path for path in named if "<" not in path and "*" not in path and not (ROOT / path).exists()] == []
