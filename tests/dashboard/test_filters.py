"""Filters of all views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofwatch.dashboard.filters import Filters
from roofwatch.model.stored_results import CaseOption, FilterOptions
from tests.builders import make_change_point, make_commit_ref, make_regression, make_series_key

SOFTMAX, MATMUL = "softmax/n=8/float16/fwd", "matmul/M=8/float32/fwd"
FACETS = FilterOptions(
    cases=(
        CaseOption(SOFTMAX, "softmax", "float16", "reduction", ("smoke", "full")),
        CaseOption(MATMUL, "matmul", "float32", "matmul", ("full",)),
    ),
    commits_by_branch={
        "main": frozenset({make_commit_ref(1).sha}),
        "feature": frozenset({make_commit_ref(2).sha}),
    },
    runner_classes=("A", "B"),
)


def narrowed(**chosen: list[str]) -> Filters:
    return Filters(FACETS, chosen)


def test_empty_filters_admit_everything() -> None:
    everything = narrowed()
    assert not everything.is_narrow
    assert everything.admits_case("never/seen")
    assert everything.admits_commit("never seen")
    assert everything.admits_runner("never seen")


def test_machine_code_is_admitted_on_every_runner() -> None:
    filters = narrowed(**{"class": ["A"]})
    assert filters.admits_series(make_series_key(runner_class=""))
    assert not filters.admits_series(make_series_key(runner_class="B"))


@pytest.mark.parametrize(
    ("parameter", "value", "admitted"),
    [
        ("filter_kernel", "softmax", {SOFTMAX}),
        ("family", "reduction", {SOFTMAX}),
        ("dtype", "float32", {MATMUL}),
        ("tag", "smoke", {SOFTMAX}),
        ("tag", "full", {SOFTMAX, MATMUL}),
    ],
)
def test_cases_are_narrowed_by_what_their_specs_say(
    parameter: str, value: str, admitted: set[str]
) -> None:
    filters = narrowed(**{parameter: [value]})
    assert {case for case in (SOFTMAX, MATMUL) if filters.admits_case(case)} == admitted


def test_kernels_are_filtered_by_owner() -> None:
    owners = {"softmax": ("@ml/kernels", "ada@example.com")}
    filters = Filters(FACETS, {"owner": ["ada@example.com"]}, owners)
    assert (filters.admits_case(SOFTMAX), filters.admits_case(MATMUL)) == (True, False)
    assert filters.owners_of(["matmul", "softmax", "softmax"]) == ["@ml/kernels", "ada@example.com"]


@pytest.mark.parametrize(
    ("tags", "admitted"),
    [
        (["70b"], {"big decode", "big prefill"}),
        (["70b", "8b"], {"big decode", "big prefill", "small decode"}),
        (["70b", "decode"], {"big decode"}),
        (["70b", "8b", "decode", "tp8"], {"big decode"}),
        (["llama", "decode", "full", "quick"], {"big decode", "small decode"}),
        (["decode", "zipf"], set()),
    ],
)
def test_tags_are_alternatives_within_their_group_only(tags: list[str], admitted: set[str]) -> None:
    known = {
        "big decode": ("llama", "70b", "decode", "tp8", "full"),
        "big prefill": ("llama", "70b", "prefill", "tp1", "full", "zipf"),
        "small decode": ("llama", "8b", "decode", "tp1", "quick"),
    }
    cases = tuple(
        CaseOption(case_id, "kernel", "float16", "", own) for case_id, own in known.items()
    )
    filters = Filters(replace(FACETS, cases=cases), {"tag": tags})
    assert filters.case_ids == frozenset(admitted)


def test_a_regression_is_admitted_by_its_commit_with_any_of_its_change_points() -> None:
    series = make_series_key(case_id=SOFTMAX)
    points = (
        make_change_point(1, series=series),
        make_change_point(1, series=replace(series, case_id=MATMUL)),
    )
    regression = make_regression(1, change_points=points)
    assert narrowed(branch=["main"], dtype=["float32"]).admits_regression(regression)
    assert not narrowed(branch=["feature"]).admits_regression(regression)
