"""The documentation agrees with the code and its pins, has no broken link, stays within its size,
and builds.
"""

import re
import tomllib
from datetime import timedelta
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, get_args

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.evaluation import AlertSetup, read_state
from roofwatch.ci.alerts.kinds import Rule, conditions_at
from roofwatch.ci.alerts.rules_file import parse_rules
from roofwatch.ci.diagnosis.diagnose import RULES
from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.machine import Outcome
from roofwatch.model.verdict import Reason
from roofwatch.spec import TOLERANCES
from tests.builders import NOON, PROJECT, make_case, make_environment, make_measurement, make_record
from tests.docs.markdown import (
    DOCUMENTS,
    ROOT,
    anchors,
    code_blocks,
    code_spans,
    is_generated,
    name_of,
    table_under,
    targets,
)

DOCS = ROOT / "docs"


def test_the_tolerances_are_those_of_the_code() -> None:
    assert table_under(DOCS / "explanation" / "accuracy.md", "Tolerances") == [
        [dtype, *map(str, (row.rmse_ratio, row.rmse_floor, row.elementwise, row.elementwise_floor))]
        for dtype, row in TOLERANCES.items()
    ]


def test_the_example_of_alert_rules_is_valid_and_has_every_kind() -> None:
    (text,) = code_blocks(DOCS / "how-to" / "alerts.md", "toml")
    kinds = {
        kind
        for rule in get_args(get_args(Rule)[0])
        for kind in get_args(rule.model_fields["kind"].annotation)
    }

    assert {rule.kind for rule in parse_rules(text).rules} == kinds


def test_every_reason_and_outcome_has_a_section() -> None:
    assert {str(reason) for reason in Reason} <= anchors(DOCS / "how-to" / "reasons.md")
    assert {str(outcome) for outcome in Outcome} <= anchors(DOCS / "how-to" / "outcomes.md")
    assert Reason.NOISE.url.endswith("/how-to/reasons.html#noise")
    assert Outcome.CRASHED.url.endswith("/how-to/outcomes.html#crashed")


def test_every_diagnosis_rule_is_listed() -> None:
    assert {rule.__name__ for rule in RULES} <= set(code_spans(DOCS / "how-to" / "diagnose.md"))


def test_pages_stay_short() -> None:
    # every release adds to the changelog
    pages = [page for page in DOCUMENTS if page.name != "CHANGELOG.md"]
    words = {page: len(page.read_text().split()) for page in pages}

    assert words[ROOT / "README.md"] <= 1_200
    assert {page: count for page, count in words.items() if count > 1_500} == {}


def _page(document: Path, target: str) -> Path:
    path = target.partition("#")[0]
    return (document.parent / path).resolve() if path else document


LINKS = [
    (document, target)
    for document in DOCUMENTS
    for target in targets(document)
    if not target.startswith("https://") and not is_generated(_page(document, target))
]


@pytest.mark.parametrize(
    ("document", "target"), LINKS, ids=[f"{name_of(page)}-{target}" for page, target in LINKS]
)
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
    made_by_verbs = {".venv", "build", "secrets", "configuration"}
    tops = {path.name for path in ROOT.iterdir()} - made_by_verbs
    named = [
        re.split(r"::| ", span)[0]
        for span in code_spans(document)
        if "/" in span and span.split("/")[0] in tops
    ]

    assert [
        path for path in named if "<" not in path and "*" not in path and not (ROOT / path).exists()
    ] == []


def test_the_page_on_workloads_declares_a_model_in_fifteen_lines_that_can_be_measured() -> None:
    (text,) = code_blocks(DOCS / "how-to" / "workloads.md", "python")
    declared: dict[str, Any] = {}
    exec(text, declared)  # noqa: S102  our own page
    spec = declared["mlp_training"]

    assert len(text.splitlines()) <= 15
    report = check_case(spec, spec.cases[0], spec.implementations["torch"], CheckCache())
    assert report.outcome is Outcome.OK
    # forward, gradient of the input and gradient of the weight of two layers
    assert spec.flop_count(spec.cases[0]) == 3 * 2 * 256 * 2 * 128 * 512


def test_the_rule_on_tokens_per_second_has_three_lines_and_reports_a_drop_on_its_devices_only(
    store: Engine,
) -> None:
    (text,) = code_blocks(DOCS / "how-to" / "workloads.md", "toml")
    channels = '[channels]\nchat = { kind = "apprise", url_env = "URL" }\n'
    (rule,) = (setup := AlertSetup(parse_rules(text + channels))).rules.rules
    step = "llama_decode/B=8,T=256/bfloat16/fwd"
    cases = [make_case(step, family="workloads", token_count=8.0)]
    for device in ("NVIDIA H100", "NVIDIA H200"):
        for number, median_ns in enumerate([1e6, 1e6, 1e6, 1.05e6, 1.05e6, 1.05e6]):
            measured = [make_measurement(step, median_ns=median_ns)]
            environment = make_environment(device_kind="cuda", device_name=device)
            ingest_record(
                store,
                make_record(number, environment=environment, cases=cases, measurements=measured),
            )

    with Session(store) as session:
        (one,) = conditions_at(rule, read_state(session, PROJECT, setup), NOON + timedelta(days=1))

    assert len(text.splitlines()) == 3
    assert one.message.devices == ("NVIDIA H100",)
    assert "token rate fell 4.8%" in one.message.title


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pinned.items()}


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    requirements = [
        Requirement(text) for group in (project["dependencies"], *extras) for text in group
    ]
    return [each for each in requirements if each.name != "roofwatch"]  # an extra within another


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_declared_and_transitive_requirements_are_pinned(requirement: Requirement) -> None:
    pinned = constraints()
    waiting, seen = [requirement], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in seen:
            continue
        seen.add(name)
        assert name in pinned, (
            f"{requirement.name} brings {name}, which constraints.txt does not pin"
        )
        assert wanted.specifier.contains(pinned[name], prereleases=True), (
            f"{name}=={pinned[name]} is not {wanted}"
        )
        for text in distribution(name).requires or ():
            needed = Requirement(text)
            environments = [{"extra": extra} for extra in (wanted.extras or {""})]
            is_wanted = needed.marker is None or any(
                needed.marker.evaluate(chosen) for chosen in environments
            )
            # torch's build for CUDA brings libraries that the build for CPUs, which was pinned,
            # does not
            if is_wanted and not (name == "torch" and needed.name.startswith(("nvidia-", "cuda-"))):
                waiting.append(needed)


def test_torch_and_triton_are_the_versions_that_contributing_names() -> None:
    named = dict(re.findall(r"\b(torch|triton)==([\d.]+)", (ROOT / "CONTRIBUTING.md").read_text()))

    assert named == {name: constraints()[name] for name in ("torch", "triton")}
