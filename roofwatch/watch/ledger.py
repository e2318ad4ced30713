"""What was reported about a branch: nothing twice, and nothing forgotten."""

import contextlib
import fcntl
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from roofwatch.ci.watching.news import News
from roofwatch.model.errors import RecordError
from roofwatch.model.files import atomic_write, make_folder

_FOLDER = "watch"
"""Beside the records, whose readers do not look into folders."""
_NEWS = TypeAdapter(tuple[News, ...])


@dataclass
class Ledger:
    """The news that were told, in a folder of records."""

    records: Path
    sent_news: list[News] = field(default_factory=list)

    @property
    def _file(self) -> Path:
        return self.records / _FOLDER / "told.json"

    def read(self) -> None:
        """Read what was told.

        Raises:
            RecordError: the file is damaged.
        """
        if not self._file.exists():
            return
        try:
            self.sent_news = list(_NEWS.validate_json(self._file.read_bytes()))
        except (OSError, ValidationError) as error:
            raise RecordError(
                f"{self._file}: cannot be read: {error}; delete it to tell everything again"
            ) from None

    def add(self, news: Sequence[News]) -> None:
        """Write down what was told just now."""
        if not news:
            return
        self.sent_news.extend(news)
        make_folder(self._file.parent)
        document = [asdict(one_news) for one_news in self.sent_news]
        atomic_write(self._file, json.dumps(document, indent=1).encode())


@contextlib.contextmanager
def only_watch(records: Path) -> Iterator[None]:
    """Keep other processes from watching with the same folder of records.

    Raises:
        RecordError: another process does.
    """
    make_folder(records / _FOLDER)
    with (records / _FOLDER / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordError(
                f"{records}: another roofwatch watch uses this folder; wait for it, or choose "
                "another with --records"
            ) from None
        yield
