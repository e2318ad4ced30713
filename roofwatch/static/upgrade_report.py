"""`roofwatch upgrade-report`: suites compiled with several releases of Triton, as one page."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from roofwatch.ci.report.upgrade_page import UpgradeStep, to_markdown
from roofwatch.ci.static.comparison import judge_static
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.runs.run_plan import ALL, OnProgress, Progress, RunPlan
from roofwatch.collector.runs.static_compiler import analyse_suite
from roofwatch.configuration.arguments import suite_source
from roofwatch.measurement.toolchains import Toolchain, find_toolchain
from roofwatch.model.errors import ToolchainError
from roofwatch.model.results import StaticFacts

BUNDLED = "bundled kernels"


def write_page(
    paths: Sequence[Path],
    releases: Sequence[str],
    plan: RunPlan,
    on_progress: OnProgress,
    *,
    extra_index_url: str | None = None,
) -> str:
    """Compile each suite, or the bundled one, with each release and compare neighbours.

    Raises:
        ToolchainError: fewer than two releases, or one that cannot be used.
        SuiteError: a suite cannot be loaded, or nothing in it matches the plan.
    """
    if len(releases) < 2:
        raise ToolchainError("--triton: give at least two releases, the older one first")
    toolchains: list[Toolchain] = []
    for release in releases:
        on_progress(Progress(0, 0, f"installing triton {release}"))
        toolchains.append(find_toolchain(release, extra_index_url=extra_index_url))
    steps: list[UpgradeStep] = []
    for path in paths or (None,):
        facts = [_compile(path, toolchain, plan, on_progress) for toolchain in toolchains]
        for index in range(1, len(toolchains)):
            step = UpgradeStep(
                suite=BUNDLED if path is None else str(path),
                base=toolchains[index - 1].name,
                head=toolchains[index].name,
                judged=judge_static(facts[index - 1], facts[index]),
            )
            steps.append(step)
    return to_markdown(
        steps,
        command=_command(paths, releases, plan),
        date=datetime.now(UTC).date().isoformat(),
    )


def _compile(
    path: Path | None,
    toolchain: Toolchain,
    plan: RunPlan,
    on_progress: OnProgress,
) -> tuple[StaticFacts, ...]:
    def show(now: Progress) -> None:
        on_progress(Progress(now.done, now.total, f"{toolchain.name}: {now.text}"))

    source = suite_source(path)
    return analyse_suite(source, plan, show, packages=toolchain.packages, has_proofs=False).facts


def _command(paths: Sequence[Path], releases: Sequence[str], plan: RunPlan) -> str:
    words = ["roofwatch", "upgrade-report", *map(str, paths)]
    if plan.kernels != ALL:
        words += [word for kernel in plan.kernels for word in ("--kernel", kernel)]
    if plan.targets != DEFAULT_TARGETS:
        words += ["--targets", ",".join(plan.targets)]
    for release in releases:
        words += ["--triton", release]
    return shlex.join(words)
