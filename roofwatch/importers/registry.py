"""Which importer reads a file."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from roofwatch.importers import FileImportError, ImportedRun, Importer, read_bytes
from roofwatch.importers.histories import HISTORIES
from roofwatch.importers.kernels import KERNELS
from roofwatch.importers.programs import PROGRAMS
from roofwatch.importers.serving import SERVING

MAX_VALUES = 2_000_000
_HEAD_BYTES = 2**16
_GROUP = "roofwatch.importers"


def importers() -> dict[str, Importer]:
    """All importers by format, those of other packages first."""
    plug_ins = {point.name: point.load() for point in entry_points(group=_GROUP)}
    return {**plug_ins, **KERNELS, **SERVING, **PROGRAMS, **HISTORIES}


def import_file(path: Path, format_name: str | None = None) -> tuple[str, ImportedRun]:
    """Read a file by the importer that recognises it, or by the named one; returns the format's name too.

    Raises:
        FileImportError: no importer knows the file, or it is damaged.
    """
    known = importers()
    name = format_name or _recognised(path, known)
    if name not in known:
        what = f"{path}: of no known format; name it with --as" if name is None else f"--as {name}: unknown; choose one"
        raise FileImportError(f"{what}: {', '.join(known)}")
    try:
        run = known[name].read(path)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        kind = type(error).__name__
        raise FileImportError(f"{path}: not a complete {name} file ({kind}: {error}); copy it again") from None
    if not run.rows:
        raise FileImportError(f"{path}: the {name} file holds no results")
    if len(run.rows) > MAX_VALUES:
        raise FileImportError(f"{path}: {len(run.rows)} values; at most {MAX_VALUES} are imported from a file")
    return name, run


def is_known(path: Path) -> bool:
    """Whether an importer recognises a file and it holds results."""
    return not path.name.endswith("benchmarks.json") and _recognised(path, importers()) is not None


def _recognised(path: Path, known: Mapping[str, Importer]) -> str | None:
    head = read_bytes(path)[:_HEAD_BYTES]
    certainties = {name: one.sniff(head, path.name) for name, one in known.items()}
    best = max(certainties, key=lambda name: certainties[name])
    return best if certainties[best] > 0 else None
