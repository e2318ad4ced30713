"""Command-line options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from roofwatch.model.optional import map_optional

if TYPE_CHECKING:
    from roofwatch.ci.report.pull_request import PullRequestJudgement
    from roofwatch.collector.runs.run_plan import RunPlan
    from roofwatch.store.reading import Sides

ACTOR = "command line"
"""Name of this program in the audit trail."""

SuitePath = Annotated[
    Path | None,
    typer.Argument(
        help="Benchmark file, or folder with bench_*.py files. Default: the bundled suite."
    ),
]
Like = Annotated[
    str | None,
    typer.Option(
        metavar="INPUTS",
        help="Inputs of a function FILE.py::NAME, such as 'x: float32[4096, 1024], "
        "rows: int64[8] from 0 to 4095, eps=1e-6'; a benchmark file bench_NAME.py is written.",
    ),
]
ReferenceFunction = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="MODULE.NAME",
        help="The same in PyTorch: torch.nn.functional.gelu, or my_ops.py::gelu_torch.",
    ),
]
ProjectName = Annotated[
    str | None,
    typer.Option(
        help="Project name. Default: the git remote's, such as owner/kernels, or the folder's."
    ),
]
RecordFolder = Annotated[Path, typer.Option("--output", "-o", help="Folder for the records.")]
SuiteFrom = Annotated[
    Literal["head", "each"],
    typer.Option(
        help="Use the head's benchmark files at every commit, unless code in them differs, or "
        "each its own."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")]
NoiseFloorFile = Annotated[
    Path | None,
    typer.Option(
        help="Noise floor of this runner, from calibrate: a change must exceed 3 times it."
    ),
]
WorkloadsFile = Annotated[
    Path | None,
    typer.Option(
        help="Profiled workloads, to predict what their steps cost. Default: "
        "roofwatch-workloads.json.gz."
    ),
]
ServerUrl = Annotated[
    str | None, typer.Option("--url", help="Server, https://host. Default: server_url.")
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Read through this server, with the token in ROOFWATCH_TOKEN. Default: the "
        "configured database, else "
        "server_url, else the embedded database.",
    ),
]
StoredProject = Annotated[str, typer.Option("--project", "-p", help="Project.")]
ShownProject = Annotated[
    str | None,
    typer.Option(
        "--project", "-p", help="Project. Default: this repository's, or the only one stored."
    ),
]
ComparedSide = Annotated[
    Path, typer.Argument(help="Record file; with --project also a commit sha or a run id.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        help="Do not redact: hostname, user, paths, arguments, environment, metadata, or all; "
        "repeatable."
    ),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the commands that measure: run, ab, calibrate, bisect, watch,
    diagnose, static.

    A new option is a field here and, where it changes what is measured, a line in `plan`.
    """

    kernel: Annotated[
        list[str] | None, typer.Option("--kernel", "-k", help="Only matching kernels; repeatable.")
    ] = None
    implementation: Annotated[
        list[str] | None,
        typer.Option("--implementation", "-i", help="Only matching implementations; repeatable."),
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            "-t",
            help="Only cases with this tag, such as quick, full, 70b or decode; repeat to require "
            "several. "
            "Default: quick on a GPU, small on a CPU.",
        ),
    ] = None
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case", "-c", help="Only cases whose ID matches, whatever their tags; repeatable."
        ),
    ] = None
    targets: Annotated[
        str | None,
        typer.Option(help="GPU targets to compile for, separated by commas, such as sm_90,gfx942."),
    ] = None
    static: Annotated[
        bool, typer.Option("--static/--no-static", help="Compile for the targets too.")
    ] = True
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. Default: a GPU if there is one.")
    ] = None
    threads: Annotated[int, typer.Option(min=1, help="Torch threads on a CPU.")] = 1
    timer: Annotated[
        Literal["auto", "cupti", "cuda_graph", "cuda_event"],
        typer.Option(help="GPU timer; auto takes the best available one for the whole run."),
    ] = "auto"
    cache: Annotated[
        Literal["cold", "hot", "rotated"] | None,
        typer.Option(help="Cache state before each launch. Default: cold on a GPU, hot on a CPU."),
    ] = None
    lock_clocks: Annotated[
        int | None,
        typer.Option(
            metavar="MHZ",
            min=100,
            max=10_000,
            help="Lock the GPU's SM clock during the run; nvidia-smi -q -d SUPPORTED_CLOCKS lists "
            "the clocks.",
        ),
    ] = None
    device_check: Annotated[
        Literal["refuse", "warn"] | None,
        typer.Option(
            help="If other processes use the GPU or persistence mode is off: refuse to measure, "
            "or warn. "
            "Default: refuse with --preset gate, else only record it."
        ),
    ] = None
    preset: Annotated[
        Literal["survey", "quick", "gate"],
        typer.Option(
            help="How long to measure: survey for a suite, quick for a change, gate to confirm."
        ),
    ] = "survey"
    timeout: Annotated[
        float,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="Time limit of each step: one check, one compilation, one block of samples.",
        ),
    ] = 300.0
    blocks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Blocks of samples per measurement and side. Default: the preset's; for a pair, "
            "at least 8.",
        ),
    ] = None
    profile: Annotated[
        bool, typer.Option("--profile", help="Profile some calls of each case after timing.")
    ] = False

    def plan(
        self,
        *,
        usual_tag: str | None = None,
        fewest_blocks: int = 1,
        pins_autotuner: bool = False,
    ) -> RunPlan:
        """Make the plan for the collector.

        Without a usual tag the device decides which cases are run. `--blocks` may be below
        `fewest_blocks`.

        Raises:
            TargetError: a target is unknown.
        """
        from roofwatch.collector.compile.targets import DEFAULT_TARGETS, parse_target
        from roofwatch.collector.runs.run_plan import RunPlan
        from roofwatch.model.measurement import CacheState, Timer
        from roofwatch.model.timing_method import EFFORTS, Preset

        targets: tuple[str, ...] = DEFAULT_TARGETS
        if self.targets is not None:
            targets = tuple(filter(None, self.targets.split(",")))
        for target in targets:
            parse_target(target)
        effort = EFFORTS[Preset(self.preset)]
        device_check = self.device_check
        if device_check is None and effort.refuses_unfit_device:
            device_check = "refuse"
        return RunPlan(
            kernels=tuple(self.kernel or ("*",)),
            implementations=tuple(self.implementation or ()) or None,
            tags=tuple(self.tag or ()) or None,
            usual_tag=usual_tag,
            cases=tuple(self.case or ()) or None,
            targets=targets if self.static else (),
            device=self.device,
            thread_count=self.threads,
            block_count=self.blocks or max(effort.block_count, fewest_blocks),
            has_fresh_processes=effort.has_fresh_processes,
            sampling=effort.sampling,
            timer=None if self.timer == "auto" else Timer(self.timer),
            cache=map_optional(CacheState, self.cache),
            lock_clocks=self.lock_clocks,
            device_check=device_check,
            timeout_s=self.timeout,
            has_profiles=self.profile,
            pins_autotuner=pins_autotuner,
        )


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of the commands that compare two records: compare and report."""

    noise_floor: NoiseFloorFile = None
    workloads: WorkloadsFile = None
    stored_floor: Annotated[
        bool,
        typer.Option(
            "--stored-floor/--no-stored-floor",
            help="With --project, use the noise floor of the latest stored calibrations unless "
            "--noise-floor is given.",
        ),
    ] = True
    project: Annotated[
        str | None,
        typer.Option(
            "--project", "-p", help="Look up sides that are not files in this stored project."
        ),
    ] = None
    runner_class: Annotated[
        str | None,
        typer.Option(
            help="Use stored runs of this runner class. Default: that of the side that is a file."
        ),
    ] = None
    url: StoreUrl = None

    def judge(self, base: Path, head: Path) -> tuple[Sides, PullRequestJudgement]:
        """Read both sides and compare them.

        Raises:
            CollectorError, StoreError, BaselineError, NoiseFloorError: an input cannot be read.
        """
        from roofwatch.store.reading import read_sides

        sides = read_sides(
            base,
            head,
            project=self.project,
            url=self.url,
            runner_class=self.runner_class,
        )
        return sides, self.judge_sides(sides)

    def judge_sides(self, sides: Sides) -> PullRequestJudgement:
        """Compare two records, with the files that these options name.

        Raises:
            CollectorError, StoreError, BaselineError, NoiseFloorError: an input cannot be read.
        """
        from roofwatch.ci.report.pull_request import judge_pull_request
        from roofwatch.configuration.settings import load_settings
        from roofwatch.reporting.records import WORKLOADS_NAME, read_step_shares
        from roofwatch.reporting.report_files import BASELINE_NAME, read_baseline, read_noise_floor

        noise_floor = read_noise_floor(self.noise_floor)
        if noise_floor is None and self.stored_floor:
            noise_floor = sides.noise_floor
        steps = [*read_step_shares(self.workloads, Path(WORKLOADS_NAME), sides.head), *sides.steps]
        return judge_pull_request(
            sides.base,
            sides.head,
            baseline=read_baseline(Path(BASELINE_NAME)),
            noise_floor=noise_floor,
            steps=steps,
            policy=load_settings().check.policy,
        )


def shared_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the fields of the class of a command's argument `options`, or some of them, to the
    options of the command.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        kind = signature.parameters["options"].annotation
        hints = get_type_hints(kind, include_extras=True)
        added = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(kind)
            if not names or field.name in names
        ]

        @functools.wraps(function)
        def command(**arguments: Any) -> None:
            options = kind(**{parameter.name: arguments.pop(parameter.name) for parameter in added})
            function(**arguments, options=options)

        own_parameters = [
            parameter for parameter in signature.parameters.values() if parameter.name != "options"
        ]
        with_options = signature.replace(parameters=[*own_parameters, *added])
        command.__signature__ = with_options  # type: ignore[attr-defined]
        return command

    return decorate
