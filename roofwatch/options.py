"""Options of the command line that several commands share; each is declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

if TYPE_CHECKING:
    from roofwatch.collector.run_plan import RunPlan

EXIT_WRONG = 1
EXIT_CANNOT = 2

_Timeout = functools.partial(typer.Option, min=0.001, metavar="SECONDS")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the commands that measure: run, ab, calibrate, bisect, backfill, diagnose, static.

    A new option is a field here and, where it changes what is measured, a line in `plan`.
    """

    kernel: Annotated[list[str] | None, typer.Option("--kernel", "-k", help="Only matching kernels; repeatable.")] = (
        None
    )
    implementation: Annotated[
        list[str] | None, typer.Option("--implementation", "-i", help="Only matching implementations; repeatable.")
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            "-t",
            help="Only cases with this tag, such as quick, full, 70b or decode; repeat to require several. "
            "Default: quick on a GPU, small on a CPU.",
            show_default=False,
        ),
    ] = None
    targets: Annotated[
        str | None, typer.Option(help="GPU targets to compile for, separated by commas, such as sm_90,gfx942.")
    ] = None
    static: Annotated[bool, typer.Option("--static/--no-static", help="Compile for the targets too.")] = True
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: a GPU if there is one.")] = None
    threads: Annotated[int, typer.Option(min=1, help="Torch threads on a CPU.")] = 1
    timer: Annotated[
        Literal["auto", "cupti", "cuda_graph", "cuda_event"],
        typer.Option(help="GPU timer; auto takes the best available one for the whole run."),
    ] = "auto"
    cache: Annotated[
        Literal["cold", "hot", "rotated"] | None,
        typer.Option(help="Cache state before each launch. Default: cold on a GPU, hot on a CPU.", show_default=False),
    ] = None
    lock_clocks: Annotated[
        str | None,
        typer.Option(
            metavar="MHZ|base",
            help="Lock the GPU's SM clock during the run; base: its clock at the power limit.",
            show_default=False,
        ),
    ] = None
    unfit_device: Annotated[
        Literal["refuse", "warn"] | None,
        typer.Option(
            help="If other processes use the GPU or persistence mode is off: refuse to measure, or warn. "
            "Default: refuse with --preset gate, else only record it.",
            show_default=False,
        ),
    ] = None
    preset: Annotated[
        Literal["survey", "quick", "gate"],
        typer.Option(help="How long to measure: survey for a suite, quick for a change, gate to confirm."),
    ] = "survey"
    launch_timeout: Annotated[float, _Timeout(help="Time limit of one launch.")] = 10.0
    preparation_timeout: Annotated[
        float, _Timeout(help="Time limit before the first launch of a block: inputs, compilation, autotuning.")
    ] = 120.0
    check_timeout: Annotated[
        float, _Timeout(help="Time limit of one check, with compilation, autotuning and the reference.")
    ] = 300.0
    compile_timeout: Annotated[
        float, _Timeout(help="Time limit for compiling one implementation of a case for all targets.")
    ] = 300.0
    blocks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Blocks of samples per measurement and side. Default: the preset's; for a pair, at least 8.",
            show_default=False,
        ),
    ] = None
    profile: Annotated[bool, typer.Option("--profile", help="Profile some calls of each case after timing.")] = False

    def plan(self, *, usual_tag: str | None = None, fewest_blocks: int = 1) -> RunPlan:
        """What the collector takes.

        Args:
            usual_tag: Tag of the cases to take if none is given; None lets the device decide.
            fewest_blocks: Minimum number of blocks if `--blocks` is not given.

        Raises:
            TargetError: an unknown target.
            CollectorError: an impossible clock.
        """
        from roofwatch.collector.compile.targets import DEFAULT_TARGETS, parse_target
        from roofwatch.collector.device.clock_lock import parse_clock
        from roofwatch.collector.record.measurement import CacheState, Timer
        from roofwatch.collector.run_plan import RunPlan
        from roofwatch.collector.timing.method import EFFORTS, Preset

        targets = DEFAULT_TARGETS if self.targets is None else tuple(filter(None, self.targets.split(",")))
        for target in targets:
            parse_target(target)
        effort = EFFORTS[Preset(self.preset)]
        return RunPlan(
            kernels=tuple(self.kernel or ("*",)),
            implementations=tuple(self.implementation or ("*",)),
            tags=tuple(self.tag) if self.tag else None,
            usual_tag=usual_tag,
            targets=targets if self.static else (),
            device=self.device,
            thread_count=self.threads,
            block_count=self.blocks or max(effort.block_count, fewest_blocks),
            has_fresh_processes=effort.has_fresh_processes,
            sampling=effort.sampling,
            timer=None if self.timer == "auto" else Timer(self.timer),
            cache=None if self.cache is None else CacheState(self.cache),
            lock_clocks=None if self.lock_clocks is None else parse_clock(self.lock_clocks),
            unfit_device=self.unfit_device or ("refuse" if effort.refuses_unfit_device else None),
            launch_timeout_s=self.launch_timeout,
            preparation_timeout_s=self.preparation_timeout,
            check_timeout_s=self.check_timeout,
            compile_timeout_s=self.compile_timeout,
            has_profiles=self.profile,
        )


def run_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options of `RunOptions` to a command, which gets them as its argument `options`.

    Args:
        names: Fields to add; all if none is given. The others keep their defaults.
    """
    hints = get_type_hints(RunOptions, include_extras=True)
    added = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(RunOptions)
        if not names or field.name in names
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**arguments: Any) -> None:
            options = RunOptions(**{parameter.name: arguments.pop(parameter.name) for parameter in added})
            function(**arguments, options=options)

        signature = inspect.signature(function, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
        command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return command

    return decorate


SuitePath = Annotated[
    Path | None,
    typer.Argument(
        help="Benchmark file, or folder with bench_*.py files. Left out: the suite that comes with roofwatch.",
        show_default=False,
    ),
]
DeviceName = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one if left out.")]
ProjectName = Annotated[str | None, typer.Option(help="Project name; the repository's folder if left out.")]
RecordFolder = Annotated[Path, typer.Option("--output", "-o", help="Folder for the records.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that was cut short there, if there is one.")]
Discard = Annotated[
    bool, typer.Option("--discard", help="Remove what a run that was cut short there left, and begin anew.")
]
CheckTimeout = Annotated[
    float,
    typer.Option(
        "--check-timeout",
        min=0.001,
        metavar="SECONDS",
        help="The longest that one check of a case's results may take, with compiling, autotuning and its reference.",
    ),
]
BaselineFile = Annotated[
    Path | None,
    typer.Option(
        help="What machine code is accepted though it got worse. Left out: roofwatch-static.toml of the repository.",
        show_default=False,
    ),
]
NoiseFloorFile = Annotated[
    Path | None,
    typer.Option(
        help="What roofwatch calibrate wrote on this runner: a change must exceed 3 times the floor of its case too.",
        show_default=False,
    ),
]
HasStoredFloor = Annotated[
    bool,
    typer.Option(
        "--stored-floor/--no-stored-floor",
        help="With --project: a change must exceed 3 times the noise that the newest stored calibrations of the runner "
        "show of its case too; --noise-floor takes their place.",
    ),
]
ServerUrl = Annotated[
    str | None,
    typer.Option("--url", help="The server, https://host. Left out: the setting server_url.", show_default=False),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Read through this server, https://host, with the token in ROOFWATCH_TOKEN. Left out: the database "
        "that is configured; where none is, the server of the setting server_url; else the embedded database.",
        show_default=False,
    ),
]
StoredProject = Annotated[str, typer.Option("--project", "-p", help="The project that is meant.", show_default=False)]
ComparedProject = Annotated[
    str | None,
    typer.Option(
        "--project",
        "-p",
        help="Of what is stored: a side that is no file is then a commit of it, or a run.",
        show_default=False,
    ),
]
RunnerClass = Annotated[
    str | None,
    typer.Option(
        help="Of what is stored, only runs on this one. Left out: on that of a side that is a file.", show_default=False
    ),
]
ComparedSide = Annotated[
    Path,
    typer.Argument(
        help="Record file; or with --project the sha of a commit, its beginning, or the id of a run.",
        show_default=False,
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it.", show_default=False)]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        help="Leave in what is taken out otherwise: hostname, user, paths, arguments, environment, metadata, or all; "
        "may be given again.",
        show_default=False,
    ),
]
