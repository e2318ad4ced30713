"""The files of the project that the workers of a run have loaded, and the time to find them."""

from collections.abc import Iterable

from roofwatch.collector.build.provenance import Provenance
from roofwatch.collector.runs.run_plan import Activity, SpentTime
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.provenance import LoadedFile
from roofwatch.model.suite_source import SuiteSource


class LoadedFiles:
    """Files that all workers of one suite loaded, and those of them that no journal has yet."""

    def __init__(self, source: SuiteSource, spent: SpentTime) -> None:
        self._provenance = Provenance(source)
        self._spent = spent
        self._new_files: tuple[LoadedFile, ...] = ()
        self._traced_ns: dict[WorkerPool, int] = {}
        """Time of workers to find files that is accounted for."""

    @property
    def foreign(self) -> LoadedFile | None:
        """A file that is not of the commit; None without one."""
        return self._provenance.foreign

    @property
    def listed(self) -> tuple[LoadedFile, ...]:
        return self._provenance.listed

    def note(self, workers: WorkerPool) -> None:
        """Add what the workers have loaded."""
        with self._spent.on(Activity.PROVENANCE):
            self._new_files += self._provenance.add(workers.loaded)
        new_ns = workers.tracing_ns - self._traced_ns.get(workers, 0)
        self._traced_ns[workers] = workers.tracing_ns
        # Workers look for files within other steps, whose time they took.
        for source in (Activity.OVERHEAD, Activity.START):
            new_ns -= self._spent.move(Activity.PROVENANCE, new_ns, source=source)

    def take_new(self) -> tuple[LoadedFile, ...]:
        """Return the files that were noted since the last call."""
        new_files = self._new_files
        self._new_files = ()
        return new_files

    def restore(self, files: Iterable[LoadedFile]) -> None:
        """Add the files of an entry of the journal."""
        self._provenance.restore(files)
