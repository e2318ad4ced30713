"""Serving benchmarks: `vllm bench serve` and SGLang's `bench_serving`.

Sources: vllm/benchmarks/serve.py and sglang/bench_serving.py. Both write `<statistic>_<metric>_ms`
and throughputs; if no request succeeds, vLLM writes 0 for every latency.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from roofwatch.importers import (
    HIGHER,
    LOWER,
    UNKNOWN,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    Json,
    JsonImporter,
    Meaning,
    rows_of,
    samples_of,
    seconds_of,
)
from roofwatch.model.machine import Outcome

_LATENCY = re.compile(r"(?P<statistic>mean|median|std|min|max|p\d+(?:\.\d+)?)_(?P<metric>\w+)_ms")
_NUMBERS = {
    "duration": ("s", UNKNOWN),
    "completed": ("requests", HIGHER),
    "failed": ("requests", LOWER),
    "total_input_tokens": ("tokens", UNKNOWN),
    "total_input_text_tokens": ("tokens", UNKNOWN),
    "total_input_vision_tokens": ("tokens", UNKNOWN),
    "total_output_tokens": ("tokens", UNKNOWN),
    "total_output_tokens_retokenized": ("tokens", UNKNOWN),
    "request_throughput": ("requests/s", HIGHER),
    "request_goodput": ("requests/s", HIGHER),
    "input_throughput": ("tokens/s", HIGHER),
    "output_throughput": ("tokens/s", HIGHER),
    "output_throughput_retokenized": ("tokens/s", HIGHER),
    "total_throughput": ("tokens/s", HIGHER),
    "total_throughput_retokenized": ("tokens/s", HIGHER),
    "total_token_throughput": ("tokens/s", HIGHER),
    "input_sequence_throughput": ("sequences/s", HIGHER),
    "max_output_tokens_per_s": ("tokens/s", HIGHER),
    "max_concurrent_requests": ("requests", UNKNOWN),
    "concurrency": ("requests", UNKNOWN),
    "rtfx": ("ratio", HIGHER),
    "accept_length": ("tokens", HIGHER),
    "spec_decode_acceptance_rate": ("%", HIGHER),
    "spec_decode_acceptance_length": ("tokens", HIGHER),
}
_LISTS = {
    "ttfts": Meaning("ttft", "s", LOWER),
    "itls": Meaning("itl", "s", LOWER),
    "latencies": Meaning("e2el", "s", LOWER),
    "queue_times": Meaning("client_queue_time", "s", LOWER),
    "start_times": Meaning("start_time", "s"),
    "input_lens": Meaning("input_len", "tokens"),
    "output_lens": Meaning("output_len", "tokens"),
}
"""Lists with one entry a request. That of `itls` is a list itself."""
_PARAMETERS = frozenset(
    (
        "num_prompts",
        "request_rate",
        "burstiness",
        "max_concurrency",
        "best_of",
        "random_input_len",
        "random_output_len",
        "random_range_ratio",
        "sharegpt_output_len",
        "fixed_output_len",
        "num_processes",
        "ramp_up_start_rps",
        "ramp_up_end_rps",
    )
)
_NOT_PARAMETERS = frozenset({"date", "model_id"})
_COUNTED_ANYWAY = frozenset({"completed", "failed", "duration"})
"""Numbers that are right even if no request succeeded."""
_ITL_EACH = "ITL by token"
_ITL_CHUNK = "ITL by streamed chunk"
"""Speculative decoding and batching put several tokens into one chunk."""


def _serving(tool: str, document: Any, _path: Path) -> ImportedRun:
    runs = document if isinstance(document, list) else [document]
    # other tools write similar keys
    if not all("completed" in run or any(map(_LATENCY.fullmatch, run)) for run in runs):
        raise ValueError("a run without latencies and requests")
    rows: list[ImportedRow] = []
    for run in runs:
        rows.extend(_rows(run, _itl(tool, str(run.get("backend")))))
    return ImportedRun(
        tool=tool,
        tool_version=runs[0].get("vllm_version") or _server_info(runs[0]).get("version"),
        rows=tuple(rows),
        commit=ImportedCommit(measured_at=seconds_of(runs[0].get("date"))),
    )


def _itl(tool: str, backend: str) -> str:
    # only SGLang's own endpoint says how many tokens a chunk has
    is_own_endpoint = backend.startswith("sglang") and "oai" not in backend
    if tool == "SGLang" and is_own_endpoint:
        return _ITL_EACH
    return _ITL_CHUNK


def _server_info(run: Json) -> Json:
    """What SGLang's server says of itself."""
    info = run.get("server_info")
    return info if isinstance(info, Mapping) else {}


def _rows(run: Json, itl: str) -> Iterator[ImportedRow]:
    shared: dict[str, Any] = {
        "case": str(
            run.get("model_id")
            or _server_info(run).get("model_path")
            or run.get("model")
            or "serving"
        ),
        "parameters": {
            key: value
            for key, value in run.items()
            if key in _PARAMETERS or (isinstance(value, str) and key not in _NOT_PARAMETERS)
        },
    }
    rows = [
        *rows_of(run, _latency, sample_count=run.get("completed"), **shared),
        *rows_of(run, _number, **shared),
        *_requests(run, shared),
    ]
    failure = _failure(run)
    for row in rows:
        more: dict[str, Any] = {"definition": itl} if row.metric in ("itl", "max_itl") else {}
        if failure is not None and row.metric not in _COUNTED_ANYWAY:
            more |= {"outcome": Outcome.CRASHED, "message": failure}
        yield replace(row, **more)


def _latency(key: str) -> Meaning | None:
    match = _LATENCY.fullmatch(key)
    if match is None:
        return None
    statistic = match["statistic"]
    better = UNKNOWN if statistic == "std" else LOWER
    return Meaning(
        metric=match["metric"],
        unit="ms",
        better=better,
        statistic=statistic,
    )


def _number(key: str) -> Meaning | None:
    name = key.removesuffix(":")  # vLLM once wrote `request_goodput:`
    if key in _PARAMETERS or _LATENCY.fullmatch(key):
        return None
    return Meaning(name, *_NUMBERS.get(name, ()))


def _requests(run: Json, shared: Json) -> Iterator[ImportedRow]:
    """The numbers of each request; those of a failed request are no results."""
    errors = run.get("errors") or []
    for key, values in run.items():
        if not isinstance(values, list) or key in _PARAMETERS:
            continue
        meaning = _LISTS.get(key, Meaning(key))
        for position, value in enumerate(values):
            # errors stand in a list of the same order
            if key in _LISTS and position < len(errors):
                error = errors[position]
            else:
                error = None
            failed: dict[str, Any] = {}
            if error:
                failed = {"outcome": Outcome.CRASHED, "message": str(error)[:1_000]}
            samples = value if isinstance(value, list) else [value]
            yield from samples_of(samples, meaning, **shared, **failed)


def _failure(run: Json) -> str | None:
    """Why the numbers of a run are no results: no request succeeded."""
    completed = run.get("completed")
    if completed:
        return None
    if completed is not None:
        requested_count = run.get("num_prompts")
        return f"none of {'its' if requested_count is None else requested_count} requests succeeded"
    latencies = [value for key, value in run.items() if _LATENCY.fullmatch(key)]
    if latencies and not any(latencies):
        return "every latency is 0, as of a run without a successful request"
    return None


_MARKS = (b"_ttft_ms", b"_itl_ms", b'"request_throughput"', b'"total_input_tokens"')
_SGLANG_MARKS = (b"retokenized", b"_e2e_latency_ms", b'"sharegpt_output_len"')


def _is_serving(head: bytes, _name: str) -> bool:
    return any(word in head for word in _MARKS)


def _is_sglang(head: bytes, name: str) -> bool:
    return _is_serving(head, name) and any(word in head for word in _SGLANG_MARKS)


SERVING = {
    "sglang": JsonImporter(partial(_serving, "SGLang"), _is_sglang),
    "vllm": JsonImporter(partial(_serving, "vLLM"), _is_serving),
}
