"""Links and files named in documents exist."""

from pathlib import Path

import pytest

from tests.docs.markdown import DOCUMENTS, ROOT, anchors, code_spans, is_generated, name_of, targets


def _page(document: Path, target: str) -> Path:
    path = target.partition("#")[0]
    return (document.parent / path).resolve() if path else document


LINKS = [
    (document, target)
    for document in DOCUMENTS
    for target in targets(document)
    if not target.startswith("https://") and not is_generated(_page(document, target))
]


@pytest.mark.parametrize(("document", "target"), LINKS, ids=[f"{name_of(page)}-{target}" for page, target in LINKS])
def test_an_internal_link_resolves(document: Path, target: str) -> None:
    page = _page(document, target)
    anchor = target.partition("#")[2]

    assert page.exists(), target
    assert ROOT in page.parents
    if anchor:
        assert anchor in anchors(page)


# a decision names the files of its day
CURRENT = [document for document in DOCUMENTS if document.parent.name != "decisions"]


@pytest.mark.parametrize("document", CURRENT, ids=name_of)
def test_named_files_exist(document: Path) -> None:
    made_by_verbs = {".venv", "build"}
    tops = {path.name for path in ROOT.iterdir()} - made_by_verbs
    named = [span.split("::")[0] for span in code_spans(document) if "/" in span and span.split("/")[0] in tops]

    assert [path for path in named if "<" not in path and "*" not in path and not (ROOT / path).exists()] == []
