"""Pairs of records for each situation of a comment."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement, MemoryUse
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.provenance import LoadedFile, Origin
from roofwatch.model.record import RunRecord
from roofwatch.model.results import StaticFacts
from tests.builders import (
    CASE_ID,
    make_accuracy,
    make_commit,
    make_environment,
    make_imported,
    make_measurement,
    make_source_line,
    make_static_facts,
)
from tests.ci.values import (
    LOUD,
    QUIET,
    SOFTMAX,
    SWIGLU,
    Result,
    make_choice,
    make_counters,
    make_records,
    make_timed,
    watched,
)

Records = tuple[RunRecord, RunRecord]
TARGETS = ("gfx942", "sm_80", "sm_90")
HOSTILE = (
    "</td></details>\n\n# Merged! @everyone #1 [click](https://evil.example) "
    "![x](https://evil.example/x.png) "
    "| cell | `code` ``` <script>alert(1)</script> --> <!-- roofwatch:report --> &amp; "
    "\u202egnp.exe"
)


def head_timed(case_id: str = CASE_ID, **fields: Any) -> Measurement:
    """A measurement of the head, with other noise than the base."""
    return make_timed(case_id, **{"levels": QUIET[::-1]} | fields)


def all_well() -> Records:
    results: list[Result] = [
        make_timed(),
        make_timed(SOFTMAX),
        make_accuracy(),
        *[make_static_facts(target=t) for t in TARGETS],
    ]
    head: list[Result] = [head_timed(), head_timed(SOFTMAX, median_ns=1.002e6), *results[2:]]
    return make_records(results, head)


def regression() -> Records:
    base: list[Result] = [make_timed(utilisation=0.62), make_timed(SOFTMAX), make_timed(SWIGLU)]
    head: list[Result] = [
        head_timed(median_ns=1.4e6, utilisation=0.44),
        head_timed(SOFTMAX, median_ns=1.08e6),
        head_timed(SWIGLU),
    ]
    return make_records(base, head, head_fields={"source_lines": (make_source_line(),)})


def workload_step() -> Records:
    """A slower kernel that is a known share of a workload's step."""
    step = f"transformer_training/B=1,T=128/{CASE_ID.split('/')[2]}/fwd"
    metric = f"{SHARE_OF_STEP}_rms_norm_kernel"
    known = make_imported(
        step,
        implementation="triton",
        metric=metric,
        statistic="value",
        unit="share",
        value=0.11,
        low=0.1,
        high=0.12,
    )
    base: list[Result] = [
        make_timed(implementation="triton"),
        make_timed(SOFTMAX, implementation="triton"),
    ]
    head: list[Result] = [
        head_timed(implementation="triton", median_ns=1.08e6),
        head_timed(SOFTMAX, implementation="triton", median_ns=1.2e6),
        make_static_facts(),
    ]
    return make_records(
        [*base, make_static_facts(code="before")], head, base_fields={"imported": [known]}
    )


def improvement() -> Records:
    """A faster case next to a new one."""
    faster = head_timed(median_ns=0.8e6, utilisation=0.5)
    return make_records(
        [make_timed(utilisation=0.4)], [faster, head_timed(SOFTMAX), make_accuracy(SOFTMAX)]
    )


def mixed() -> Records:
    base: list[Result] = [
        make_timed(),
        make_timed(implementation="compile"),
        make_timed(SOFTMAX),
        make_timed(SWIGLU),
        make_accuracy(SWIGLU),
        make_static_facts(),
    ]
    head: list[Result] = [
        head_timed(median_ns=1.25e6),
        head_timed(implementation="compile", median_ns=0.7e6),
        head_timed(SOFTMAX, levels=LOUD),
        head_timed(SWIGLU),
        make_accuracy(SWIGLU, rmse_ratio=8e-6),
        make_static_facts(code="second version", registers=40, code_bytes=2_304),
    ]
    return make_records(base, head)


def incorrect() -> Records:
    """A wrong result, a crash, and a kernel that failed before too."""
    failing = make_measurement(SWIGLU, outcome=Outcome.TIMED_OUT)
    head: list[Result] = [
        make_measurement(
            SOFTMAX, outcome=Outcome.CRASHED, message="the worker ended with signal 11"
        ),
        make_measurement(outcome=Outcome.INCORRECT, message="not timed: its result is wrong"),
        make_accuracy(
            outcome=Outcome.INCORRECT, rmse_ratio=0.31, message="out: 31% of the reference"
        ),
        failing,
    ]
    return make_records([make_timed(SOFTMAX), make_timed(), make_accuracy(), failing], head)


def no_base_cases() -> Records:
    return make_records(
        [], [make_timed(), make_accuracy(), make_timed(SOFTMAX), make_static_facts()]
    )


def new_implementation() -> Records:
    """A faster Triton kernel for the existing cases, beside one that is too noisy to judge."""
    other = "rms_norm/n_rows=128,n_cols=128/float32/fwd"
    base: list[Result] = [make_timed(), make_timed(other)]
    head: list[Result] = [head_timed(levels=LOUD), head_timed(other)]
    for case_id, median_ns in ((CASE_ID, 5.5e5), (other, 6e5)):
        head.append(head_timed(case_id, median_ns=median_ns, implementation="triton"))
        head.append(make_accuracy(case_id, implementation="triton"))
        head.append(make_static_facts(case_id, target="sm_90", shared_bytes=1024))
        head.append(make_static_facts(case_id, target="gfx942", local_bytes=64))
    return make_records(base, head)


def head_not_importable() -> Records:
    """The kernels are imported when they are called, and their module is broken at the head."""
    message = "ModuleNotFoundError: No module named 'module_of_another_project'"
    cases = (CASE_ID, SOFTMAX, SWIGLU)
    base: list[Result] = []
    head: list[Result] = []
    for case_id in cases:
        failed: dict[str, Any] = {
            "implementation": "triton",
            "outcome": Outcome.CRASHED,
            "message": message,
        }
        base.append(make_accuracy(case_id, implementation="triton"))
        head.append(make_accuracy(case_id, **failed))
        for target in ("sm_90", "gfx942"):
            base.append(make_static_facts(case_id, target=target, toolchain={"triton": "3.7.1"}))
            head.append(make_static_facts(case_id, target=target, function="triton", **failed))
    return make_records(base, head)


def removed_benchmark() -> Records:
    """One of three benchmarks is gone; the others are judged."""
    base: list[Result] = [make_timed(), make_timed(SOFTMAX), make_timed(SWIGLU)]
    return make_records(base, [head_timed(), head_timed(SOFTMAX)])


def stopped_early() -> Records:
    """The job's time was over when one of three benchmarks was timed, which is slower."""
    checked: list[Result] = [
        make_accuracy(),
        make_accuracy(SOFTMAX),
        make_accuracy(SWIGLU),
    ]
    base, head = make_records([*checked, make_timed()], [*checked, head_timed(median_ns=1.4e6)])
    return base.model_copy(update={"is_partial": True}), head.model_copy(
        update={"is_partial": True}
    )


def all_removed() -> Records:
    """Another benchmark replaces both, so nothing is left to compare."""
    return make_records([make_timed(), make_timed(SOFTMAX)], [head_timed(SWIGLU)])


def removed() -> Records:
    base: list[Result] = [
        make_timed(),
        make_timed(SOFTMAX),
        make_static_facts(),
        make_static_facts(target="gfx942"),
    ]
    return make_records(base, [head_timed(), make_static_facts()])


def skipped() -> Records:
    """One kernel was measured; the change does not affect the others."""
    untouched = ("softmax", "swiglu", "geglu")
    return make_records(
        [make_timed()],
        [head_timed(median_ns=1.2e6)],
        base_fields={"skipped": untouched},
        head_fields={"skipped": untouched},
    )


def not_comparable() -> Records:
    environment = make_environment(device_name="Other CPU", torch_version="2.14.0")
    return make_records(
        [make_timed()], [head_timed(median_ns=2e6)], head_fields={"environment": environment}
    )


def not_paired() -> Records:
    return make_records([make_timed()], [head_timed(median_ns=1.2e6)], is_paired=False)


def inconclusive() -> Records:
    return make_records(
        [make_timed(), make_timed(SOFTMAX)], [head_timed(levels=LOUD), head_timed(SOFTMAX)]
    )


def throttled() -> Records:
    """A case with too few usable blocks, one with enough, and one whose clock changed."""
    hot = ("hw_slowdown", "hw_thermal_slowdown")
    base: list[Result] = [
        watched(make_timed()),
        watched(make_timed(SOFTMAX)),
        watched(make_timed(SWIGLU)),
    ]
    head: list[Result] = [
        watched(head_timed(median_ns=1.3e6), degraded=dict.fromkeys(range(4), hot)),
        watched(head_timed(SOFTMAX), degraded={2: ("foreign_process",)}),
        watched(head_timed(SWIGLU, median_ns=1.1e6), sm_clock_mhz=1_800),
    ]
    return make_records(base, head)


def autotuner_chose_otherwise() -> Records:
    """The base ran the head's second best configuration, and the same was counted on both sides."""
    base, head = (
        make_choice(128, times_us={64: 13.1, 128: 12.9}),
        make_choice(64, times_us={64: 12.6, 128: 12.8}),
    )
    before = {
        "duration_ns": 12_900.0,
        "dram_bytes": 4_194_304.0,
        "stall_barrier_share": 0.1,
        "registers_per_thread": 64,
    }
    after = before | {
        "duration_ns": 18_060.0,
        "stall_barrier_share": 0.43,
        "registers_per_thread": 96,
    }
    return make_records(
        [make_timed(autotuning=(base,)), make_timed(SOFTMAX, autotuning=(base,))],
        [head_timed(median_ns=1.4e6, autotuning=(head,)), head_timed(SOFTMAX, autotuning=(head,))],
        base_fields={"counters": [make_counters(values=before)]},
        head_fields={"counters": [make_counters(values=after)]},
    )


def static_spill() -> Records:
    kernels = ("_attention_kernel", "_rms_norm_kernel", "_softmax_kernel")
    base = [
        make_static_facts(function=function, target=target)
        for function in kernels
        for target in TARGETS
    ]
    head: list[Result] = [
        make_static_facts(
            function=facts.function,
            target=facts.target,
            code="second version",
            registers=255,
            local_bytes=96 if facts.target == "sm_80" else 16,
            spilled_registers=24 if facts.target == "gfx942" else None,
        )
        if facts.function == "_attention_kernel" and facts.target != "sm_90"
        else facts
        for facts in base
    ]
    base = [
        facts.model_copy(update={"spilled_registers": 0}) if facts.target == "gfx942" else facts
        for facts in base
    ]
    head[-1] = make_static_facts(
        function="_softmax_kernel",
        target="sm_90",
        outcome=Outcome.COMPILE_ERROR,
        message="shared memory exceeded",
    )
    return make_records([make_timed(), *base], [head_timed(), *head])


def static_sentences() -> Records:
    """Spills, narrower loads, unused tensor cores and lower occupancy."""
    tile = {"BLOCK_M": 128, "BLOCK_N": 128}
    fits = {
        "registers": 128,
        "local_bytes": 0,
        "spill_store_count": 0,
        "theoretical_occupancy": 0.25,
    }
    spills = {
        "registers": 255,
        "local_bytes": 904,
        "spill_store_count": 226,
        "theoretical_occupancy": 0.125,
    }

    def matmul(warps: int, target: str, **fields: Any) -> StaticFacts:
        return make_static_facts(
            function="_matmul_kernel",
            target=target,
            code=f"{warps} warps",
            configuration=tile | {"num_warps": warps},
            occupancy_limits=("registers",),
            **fields,
        )

    def rows(code: str, instructions: dict[str, int], **fields: Any) -> StaticFacts:
        return make_static_facts(code=code, instructions=instructions, **fields)

    base: list[Result] = [
        *[matmul(8, target, **fits) for target in ("sm_80", "sm_90")],
        rows("a", {"global_load.128": 2, "global_store.128": 2}),
        rows("a", {"tensor.HGMMA": 16, "async_copy.128": 8}, function="_scores_kernel"),
        make_static_facts(SOFTMAX, function="_softmax_kernel", theoretical_occupancy=0.5),
    ]
    head: list[Result] = [
        *[matmul(4, target, **spills) for target in ("sm_80", "sm_90")],
        rows("b", {"global_load.32": 8, "global_store.128": 2}),
        rows("b", {"async_copy.128": 8}, function="_scores_kernel"),
        make_static_facts(
            SOFTMAX,
            function="_softmax_kernel",
            code="b",
            registers=64,
            theoretical_occupancy=0.25,
            occupancy_limits=("registers", "shared memory"),
        ),
    ]
    return make_records([make_timed(), *base], [head_timed(), *head])


def static_toolchain() -> Records:
    base = [
        make_static_facts(toolchain={"triton": "3.6.0"}),
        make_static_facts(SOFTMAX, toolchain={"triton": "3.6.0"}),
    ]
    head = [
        make_static_facts(code="b", toolchain={"triton": "3.7.1"}, registers=40, local_bytes=16),
        make_static_facts(SOFTMAX, code="b", toolchain={"triton": "3.7.1"}),
    ]
    return make_records(
        [make_timed(), *base],
        [head_timed(), *head],
        base_fields={"environment": make_environment(triton_version="3.6.0")},
    )


def hostile_names() -> Records:
    case_id = f"{HOSTILE.replace('/', '⁄')}/n=1/float32/fwd"
    broken = "`|@" * 5 + "/n=1/float32/fwd"
    base: list[Result] = [
        make_timed(case_id, implementation=HOSTILE),
        make_timed(broken),
        make_timed(SOFTMAX),
        make_static_facts(case_id, function=HOSTILE, implementation=HOSTILE, target=HOSTILE),
        make_static_facts(SOFTMAX, configuration={HOSTILE: HOSTILE, f"BLOCK {HOSTILE}": 64}),
    ]
    head: list[Result] = [
        head_timed(case_id, implementation=HOSTILE, median_ns=1.4e6),
        make_measurement(broken, outcome=Outcome.CRASHED, message=HOSTILE),
        make_static_facts(
            case_id,
            function=HOSTILE,
            implementation=HOSTILE,
            target=HOSTILE,
            code="b",
            local_bytes=48,
        ),
        make_static_facts(
            SOFTMAX,
            code="b",
            configuration={HOSTILE: f"{{}} {HOSTILE}", f"BLOCK {HOSTILE}": 128},
            local_bytes=8,
            instructions={HOSTILE: 1, f"tensor.{HOSTILE}": 2},
            theoretical_occupancy=0.1,
            occupancy_limits=(HOSTILE,),
        ),
    ]
    return make_records(
        base,
        head,
        base_fields={"environment": make_environment(os=HOSTILE)},
        head_fields={
            "environment": make_environment(
                os=HOSTILE, torch_version=HOSTILE, cuda_version=HOSTILE
            ),
            "commit": make_commit(1, subject=HOSTILE, author=HOSTILE, is_dirty=True),
            "suite": "$(evil) `evil`.py",
            "source_lines": (
                make_source_line(kernel=HOSTILE.split("/")[0], file='a) [evil](b|`c`"<script>.py'),
                make_source_line(
                    kernel="softmax", implementation="triton", file='a) [evil](b|`c`"<script>.py'
                ),
            ),
        },
    )


def _of_200_kernels(factors: dict[int, float], **fields: Any) -> Records:
    """200 kernels; those numbered in `factors` take that many times as long."""
    case_ids = [
        f"layer_norm_{number:03}/n_rows=4096,n_cols=1024/bfloat16/fwd" for number in range(200)
    ]
    base: list[Result] = [make_timed(case_id, implementation="triton") for case_id in case_ids]
    head: list[Result] = [
        head_timed(case_id, implementation="triton", median_ns=1e6 * factors.get(number, 1.0))
        for number, case_id in enumerate(case_ids)
    ]
    return make_records(base, head, **fields)


def one_of_200_slower() -> Records:
    return _of_200_kernels({11: 1.25})


def seven_of_200_faster() -> Records:
    return _of_200_kernels({number: 0.9 - number / 100 for number in range(7)})


def all_200_slower() -> Records:
    lines = tuple(
        make_source_line(
            kernel=f"layer_norm_{number:03}", implementation="triton", file="kernels/layer_norm.py"
        )
        for number in range(200)
    )
    factors = {number: 1.1 + number / 200 for number in range(200)}
    return _of_200_kernels(factors, head_fields={"source_lines": lines})


def foreign_code() -> Records:
    """A head nine times slower that was not the head."""
    file = LoadedFile(module="qk.ops", path="site-packages/qk/ops.py", origin=Origin.INSTALLED)
    return make_records(
        [make_timed()],
        [make_timed(median_ns=9e6)],
        base_fields={"provenance": (file,)},
        head_fields={"provenance": (file,)},
    )


def other_harness() -> Records:
    return make_records(
        [make_timed()], [head_timed(median_ns=2e6)], head_fields={"harness_version": "2"}
    )


def other_torch() -> Records:
    environment = make_environment(torch_version="2.14.0")
    return make_records(
        [make_timed()], [head_timed(median_ns=1.3e6)], head_fields={"environment": environment}
    )


def launch_changes() -> Records:
    """Two shapes need more memory for a launch, one less."""
    other = "rms_norm/n_rows=128,n_cols=128/float32/fwd"
    bytes_by_case = {CASE_ID: (2**20, 2**21), other: (2**20, 3 * 2**20), SOFTMAX: (2**21, 2**20)}

    def timed(side: int) -> list[Result]:
        return [
            make_timed(
                case_id,
                memory=MemoryUse(
                    peak_allocated_bytes=peaks[side], peak_reserved_bytes=2**24, allocation_count=1
                ),
            )
            for case_id, peaks in bytes_by_case.items()
        ]

    return make_records(timed(0), timed(1))


@cache  # frozen, and ten thousand results take a second to make
def huge() -> Records:
    base: list[Result] = []
    head: list[Result] = []
    for number in range(5_000):
        lengths = ",".join(f"dimension_{letter}={'1' * 10}" for letter in "abcd")
        case_id = f"rms_norm/n_rows={number},{lengths}/float32/fwd"
        base.append(make_timed(case_id, levels=QUIET[:3]))
        head.append(head_timed(case_id, levels=QUIET[:3], median_ns=1.1e6 + number * 100))
    facts = [make_static_facts(target=f"sm_{number}") for number in range(300)]
    spilled = [
        make_static_facts(target=f"sm_{number}", code="b", local_bytes=8 + number)
        for number in range(300)
    ]
    return make_records([*base, *facts], [*head, *spilled])


SITUATIONS: dict[str, Callable[[], Records]] = {
    situation.__name__: situation
    for situation in (
        all_well,
        regression,
        workload_step,
        improvement,
        mixed,
        incorrect,
        no_base_cases,
        new_implementation,
        removed,
        removed_benchmark,
        all_removed,
        stopped_early,
        head_not_importable,
        skipped,
        not_comparable,
        not_paired,
        inconclusive,
        throttled,
        autotuner_chose_otherwise,
        static_spill,
        static_sentences,
        static_toolchain,
        launch_changes,
        foreign_code,
        other_harness,
        other_torch,
        one_of_200_slower,
        seven_of_200_faster,
        all_200_slower,
        hostile_names,
        huge,
    )
}


def write_records(folder: Path, records: Records) -> list[Path]:
    """Write base and head into a folder; return the files."""
    folder.mkdir(exist_ok=True)
    files = [folder / "base-1.json", folder / "head-1.json"]
    for record, file in zip(records, files, strict=True):
        record.write(file)
    return files
