"""Short forms of long results: what an agent needs first, in compact rows."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from roofwatch.ci.report.step import signed_ns

_ROWS = 5
"""Modules, lines and operators of a profile that a short answer lists."""
_PASSED = ("ok", "fits")


def brief_result(tool: str, result: Any) -> Any:
    """Put first what a result of a tool says, and leave out what passed."""
    rules: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "ab": _of_pair,
        "profile": _of_profile,
        "check": _of_check,
        "diff": _of_diff,
    }
    rule = rules.get(tool)
    if rule is None or not isinstance(result, dict):
        return result
    return rule(result)


def compact(value: Any) -> Any:
    """Leave out what is missing or empty, and write a judged metric as one short row."""
    if isinstance(value, list):
        return [compact(element) for element in value]
    if not isinstance(value, dict):
        return _rounded(value)
    # a judged metric, wherever it is in the result
    if {"subject", "metric", "verdict"} <= value.keys():
        value = _judged_row(value)
    fields = {key: compact(field) for key, field in value.items()}
    return {key: field for key, field in fields.items() if field not in (None, [], {})}


def _rounded(value: Any) -> Any:
    """Four digits tell what a longer number does."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return value


def _judged_row(judged: Mapping[str, Any]) -> dict[str, Any]:
    subject = judged["subject"] or {}
    row = {name: subject.get(name) for name in ("case_id", "implementation", "target")}
    for name in ("metric", "base", "head", "verdict", "reason"):
        row[name] = judged.get(name)
    # a metric without numbers has only words
    if row["base"] is None and row["head"] is None:
        row["detail"] = judged.get("detail")
    return row


def _of_pair(result: dict[str, Any]) -> dict[str, Any]:
    """Sizes and judgement first; the two environments once if they are the same."""
    judgement = result.get("judgement")
    if not isinstance(judgement, dict):
        return result
    rest = dict(judgement)
    base_environment = rest.pop("base_environment", None)
    head_environment = rest.pop("head_environment", None)
    environments = {"base": base_environment, "head": head_environment}
    # as usual: both sides ran in one job
    if base_environment == head_environment:
        environments = {"both": base_environment}
    first = {name: rest.pop(name) for name in ("verdict", "counts", "notes") if name in rest}
    # at the end: they are long, and the agent has just named them
    commits = {name: rest.pop(name) for name in ("base", "head") if name in rest}
    others = {name: field for name, field in result.items() if name not in ("changed", "judgement")}
    return {
        "changed": result.get("changed"),
        "judgement": {**first, **rest},
        **others,
        "commits": {name: _commit(commit) for name, commit in commits.items()},
        "environment": environments,
    }


def _commit(commit: Any) -> Any:
    if not isinstance(commit, dict):
        return commit
    return {name: commit.get(name) for name in ("sha", "subject", "is_dirty")}


def _of_profile(result: dict[str, Any]) -> dict[str, Any]:
    """The modules, functions and lines with the most own time, and the first trace."""
    steps = [_step(step) for step in (result.get("step") or [])[:1]]
    traces = [_trace(trace) for trace in (result.get("traces") or [])[:1]]
    return {**result, "step": steps, "traces": traces}


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    short: dict[str, Any] = {"where": step["where"], "total_ns": step["total_ns"]}
    for kind in ("modules", "functions", "calls", "lines"):
        times = sorted(step[kind], key=lambda time: -time["innermost_ns"])
        short[kind] = [_shares(time, step["total_ns"]) for time in times[:_ROWS]]
        # says that a pointer into the whole result has more
        if len(times) > _ROWS:
            short[kind].append(f"... {len(times) - _ROWS} more")
    return short


def _shares(time: Mapping[str, Any], total_ns: int) -> dict[str, Any]:
    inclusive_ns = time["forward_ns"] + time["backward_ns"]
    return {
        "name": time["name"],
        "detail": time["detail"],
        "own_share": time["innermost_ns"] / total_ns,
        "inclusive_share": inclusive_ns / total_ns,
    }


def _trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    operators = trace["time"]["operators"]
    short_operators: list[Any] = [_operator(row) for row in operators[:_ROWS]]
    if len(operators) > _ROWS:
        short_operators.append(f"... {len(operators) - _ROWS} more")
    step_ns = (trace["steady"] or {}).get("step_ns") or []
    return {
        "trace": trace["trace"],
        "step_count": len(step_ns),
        "median_step_ns": statistics.median(step_ns) if step_ns else None,
        "window_ns": trace["time"]["window_ns"],
        "time": {"operators": short_operators},
    }


def _operator(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": row["name"], "count": row["count"], "share": row["share"]}


def _of_diff(result: dict[str, Any]) -> dict[str, Any]:
    """What is new or gone in a step before what takes another time; no lists of both sides."""
    short = dict(result)
    for side in ("base", "head"):
        profile = result.get(side) or {}
        names = ("command", "culprit", "place", "load")
        short[side] = {name: profile.get(name) for name in names}
    short["ledgers"] = [_ledger(ledger) for ledger in result.get("ledgers") or []]
    return short


def _ledger(ledger: Mapping[str, Any]) -> dict[str, Any]:
    short = {name: field for name, field in ledger.items() if not isinstance(field, (dict, list))}
    matched = [row for row in ledger["rows"] if row["change"] == "matched"]
    others = [row for row in ledger["rows"] if row["change"] != "matched"]
    for name, rows in (("not_matched", others), ("matched", matched)):
        short[name] = [_ledger_row(row) for row in rows[:_ROWS]]
        if len(rows) > _ROWS:
            short[name].append(f"... {len(rows) - _ROWS} more")
    return short


def _ledger_row(row: Mapping[str, Any]) -> str:
    """For example `removed: aten::copy_, 16 -> 0 a step, -2.1 ms`."""
    base_names = ", ".join(dict.fromkeys(row["base_names"]))
    head_names = ", ".join(dict.fromkeys(row["head_names"]))
    names = base_names or head_names
    if base_names and head_names and base_names != head_names:
        names = f"{base_names} -> {head_names}"
    return (
        f"{row['change']}: {names}, {row['base_launches']:.4g} -> {row['head_launches']:.4g} a "
        f"step, {signed_ns(row['change_ns'])}"
    )


def _of_check(result: dict[str, Any]) -> dict[str, Any]:
    """The claims whole, and of the reports those that did not pass, each with its pointer."""
    short = {"proofs": result.get("proofs"), **result}
    for name in ("reports", "overflow_proofs"):
        rows = result.get(name) or []
        remarkable = [
            {"pointer": f"/{name}/{number}", **row}
            for number, row in enumerate(rows)
            if row.get("outcome", row.get("proof")) not in _PASSED or row.get("failed")
        ]
        short[name] = remarkable
        # an empty list alone could mean that nothing was checked
        if len(remarkable) < len(rows):
            short[f"{name}_left_out"] = f"{len(rows) - len(remarkable)} that passed"
    return short
