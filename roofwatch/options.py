"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
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
RecordFile = Annotated[Path, typer.Argument(help="Record file.", show_default=False)]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it.", show_default=False)]
