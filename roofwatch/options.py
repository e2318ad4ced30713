"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

EXIT_WRONG = 1
EXIT_CANNOT = 2

SuitePath = Annotated[
    Path | None,
    typer.Argument(
        help="Benchmark file, or folder with bench_*.py files. Left out: the suite that comes with roofwatch.",
        show_default=False,
    ),
]
KernelPattern = Annotated[
    list[str] | None, typer.Option("--kernel", "-k", help="Only kernels that match; may be given again.")
]
ImplementationPattern = Annotated[
    list[str] | None, typer.Option("--implementation", "-i", help="Only these implementations; may be given again.")
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        "-t",
        help="Only cases with this tag, for example quick, full, 70b or decode; given again: with each of them. "
        "Left out: quick on a GPU, small on a CPU.",
        show_default=False,
    ),
]
DeviceName = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one if left out.")]
ThreadCount = Annotated[int, typer.Option(min=1, help="Threads of torch on the CPU.")]
ProjectName = Annotated[str | None, typer.Option(help="Project name; the repository's folder if left out.")]
IsStatic = Annotated[bool, typer.Option("--static/--no-static", help="Compile for the targets too.")]
RecordFolder = Annotated[Path, typer.Option("--output", "-o", help="Folder for the records.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that was cut short there, if there is one.")]
Discard = Annotated[
    bool, typer.Option("--discard", help="Remove what a run that was cut short there left, and begin anew.")
]
LockClocks = Annotated[
    str | None,
    typer.Option(
        metavar="MHZ|base",
        help="Hold the GPU's SM clock at this while measuring; base: the one it keeps at its power limit. "
        "Left out: nothing is locked.",
        show_default=False,
    ),
]
HasProfiles = Annotated[
    bool,
    typer.Option("--profile", help="Profile some calls of each case too, after all is timed: what they launch."),
]
TimerName = Annotated[
    Literal["auto", "cupti", "cuda_graph", "cuda_event"],
    typer.Option("--timer", help="What times a GPU; auto: the best that there is, one for the whole run."),
]
CacheName = Annotated[
    Literal["cold", "hot", "rotated"] | None,
    typer.Option(
        "--cache",
        help="What a launch finds in the last-level cache. Left out: nothing of its data on a GPU, all of it on a CPU.",
        show_default=False,
    ),
]
UnfitDeviceAction = Annotated[
    Literal["refuse", "warn"] | None,
    typer.Option(
        "--unfit-device",
        help="Refuse to measure, or warn, where other processes use the GPU or its persistence mode is off. "
        "Left out: refuse with --preset gate, else leave it to the blocks to tell.",
        show_default=False,
    ),
]
PresetName = Annotated[
    Literal["survey", "quick", "gate"],
    typer.Option("--preset", help="How long to measure: a whole suite, what a change touches, or what must be sure."),
]
LaunchTimeout = Annotated[
    float,
    typer.Option(
        "--launch-timeout",
        min=0.001,
        metavar="SECONDS",
        help="The longest that one launch of a kernel may take; one that takes much longer is told as hanging.",
    ),
]
PreparationTimeout = Annotated[
    float,
    typer.Option(
        "--preparation-timeout",
        min=0.001,
        metavar="SECONDS",
        help="What a block of samples has before its first launch: inputs, compiling, autotuning.",
    ),
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
CompileTimeout = Annotated[
    float,
    typer.Option(
        "--compile-timeout",
        min=0.001,
        metavar="SECONDS",
        help="The longest that one case and implementation may take to compile for all targets together.",
    ),
]
TargetList = Annotated[
    str | None, typer.Option(help="GPU targets to compile for, separated by commas, for example sm_90,gfx942.")
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
