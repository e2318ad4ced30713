"""Everything that the evidence consists of so far in one file, for a machine whose files are lost
between calls.
"""

import tarfile
from pathlib import Path

MAX_ARCHIVE_BYTES = 15 * 10**6


def write_archive(folder: Path, archive: Path) -> list[str]:
    """Pack the folder into one compressed file, in one step, so that a kill leaves the old one.

    The largest files are left out until the rest fits.

    Returns:
        Names of the files that were left out.
    """
    # an archive in the folder does not contain itself
    files = [file for file in folder.rglob("*") if file.is_file() and file != archive]
    # the largest file is popped from the end
    files.sort(key=lambda file: file.stat().st_size)
    partial_archive = archive.with_name(f"{archive.name}.part")
    omitted: list[str] = []
    while True:
        with tarfile.open(partial_archive, "w:gz") as packed:
            for file in files:
                packed.add(file, file.relative_to(folder))
        # the size of a compressed file is known only when it is written
        fits = partial_archive.stat().st_size <= MAX_ARCHIVE_BYTES
        if fits or not files:
            break
        largest = files.pop()
        omitted.append(str(largest.relative_to(folder)))
    partial_archive.replace(archive)
    return omitted


def read_archive(archive: Path, folder: Path) -> None:
    """Continue where the archive of an earlier call ended; a folder with files stays as it is."""
    if archive.exists() and not any(folder.iterdir()):
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
