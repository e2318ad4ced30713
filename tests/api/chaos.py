"""Kill the client, the API, its workers or the database at random moments of an upload, and count
lost or duplicated records and projects that are never analysed.

Each round sends two records with `roofwatch push`, one from the spool and one from a file, with an
artefact of 300 kB. It kills one process with SIGKILL, restarts it, pushes again and compares the
stored records with what was sent. Then the database is away for a while, and then the client's disk
is full.

    PYTHONPATH=. python -m tests.api.chaos record.json.gz --kills 200
"""

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen, TimeoutExpired

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.spool import Spool
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.artefacts import list_artefacts, read_artefact
from roofwatch.db.queries.records import load_record
from roofwatch.db.regressions.analysis_queue import read_queue_state
from roofwatch.db.schema.runs import RunRow
from roofwatch.model.record import Artefact, RunRecord
from tests.api.service import Service, copy_of

VICTIMS = ("client", "api", "postgres", "worker", "backend")

_PROJECT_COUNT = 20
_ARTEFACT_BYTES = 300_000
_CLIENT_TIMEOUT_S = 120.0
# a project whose analysis was broken off by a dead database pauses before the next attempt
_ANALYSIS_TIMEOUT_S = 300.0
_MAX_PUSHES = 8
_OUTAGE_RUNNERS = 4
_POLL_S = 0.001


@dataclass
class Tally:
    """Number of records and files sent, lost, changed and duplicated."""

    sent: int = 0
    acknowledged_before_the_kill: int = 0
    acknowledged_and_absent: int = 0
    never_arrived: int = 0
    other_content: int = 0
    doubled: int = 0
    files_lost: int = 0
    never_analysed: int = 0
    """Projects that wait for an analysis though workers run."""
    pushes: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        return not any(
            (
                self.acknowledged_and_absent,
                self.never_arrived,
                self.other_content,
                self.doubled,
                self.files_lost,
                self.never_analysed,
            )
        )

    def check_record(self, engine: Engine, record: RunRecord) -> None:
        """Compare a record and its files with what is stored."""
        with Session(engine) as session:
            query = select(func.count()).select_from(RunRow).where(RunRow.run_id == record.run_id)
            is_stored = session.execute(query).scalar_one() > 0
            stored = {
                each.sha256 for each in list_artefacts(session, record.run_id) if each.is_stored
            }
        if not is_stored:
            self.never_arrived += 1
            return
        self.other_content += not is_stored_unchanged(engine, record)
        for artefact in record.artefacts:
            content = (
                read_artefact(engine, record.run_id, artefact.sha256)
                if artefact.sha256 in stored
                else ()
            )
            self.files_lost += hashlib.sha256(b"".join(content)).hexdigest() != artefact.sha256

    def check_count(self, engine: Engine) -> None:
        """Compare the number of stored records with the number sent."""
        with Session(engine) as session:
            stored = session.execute(select(func.count()).select_from(RunRow)).scalar_one()
        self.doubled += max(0, stored - self.sent)
        self.never_arrived = max(self.never_arrived, self.sent - stored)

    def check_queue(self, engine: Engine) -> None:
        """Wait until every project is analysed: no kill may leave one in the queue."""
        deadline_s = time.monotonic() + _ANALYSIS_TIMEOUT_S
        self.never_analysed = 1
        while self.never_analysed and time.monotonic() < deadline_s:
            with Session(engine) as session:
                self.never_analysed = read_queue_state(session).waiting_count
            time.sleep(_POLL_S)


def is_stored_unchanged(engine: Engine, record: RunRecord) -> bool:
    """Whether a record is stored with equal content; duplicated rows would change it."""
    try:
        with Session(engine) as session:
            return load_record(session, record.run_id).content_hash == record.content_hash
    except StoreError:
        return False


@dataclass(frozen=True)
class Shipment:
    """Two records of one machine on their way to the server."""

    folder: Path
    spooled: RunRecord
    filed: RunRecord
    """Starts as a file, which the client puts into the spool."""

    @property
    def spool(self) -> Spool:
        return Spool(self.folder / "spool")

    def is_in_spool(self, record: RunRecord) -> bool:
        return any(self.spool.folder.glob(f"{record.run_id}-*.json.gz"))


class Chaos:
    """Runs the rounds with a running server; every record that it sends is a copy of a real one as
    another run.
    """

    def __init__(self, service: Service, real: RunRecord, draw: random.Random) -> None:
        self.tally = Tally()
        self._service = service
        self._real = real
        self._draw = draw
        self._started_s, self._sent_s = self._time_undisturbed_push()

    def kill_during_push(self, victim: str) -> None:
        """Kill one process during one push."""
        shipment = self._ship()
        client = self._push(shipment)
        spooled = self._wait_for_random_moment(client, shipment, victim)
        self._kill(victim, client)
        acknowledged = [record for record in spooled if not shipment.is_in_spool(record)]
        self.tally.faults[victim] += 1
        self.tally.acknowledged_before_the_kill += len(acknowledged)
        if victim != "client":
            self._service.repair()
        engine = self._service.engine
        self.tally.acknowledged_and_absent += sum(
            not is_stored_unchanged(engine, record) for record in acknowledged
        )
        _end(client)
        self._push_until_sent(shipment)

    def outage(self, seconds: float) -> None:
        """Let runners push while the database is away, and once more when it is back."""
        shipments = [self._ship() for _ in range(_OUTAGE_RUNNERS)]
        self._service.kill_postgres()
        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            round_s = min(3 * self._sent_s, left_s)
            clients = [
                (self._draw.uniform(0, round_s), self._push(shipment)) for shipment in shipments
            ]
            began_s = time.monotonic()
            for after_s, client in sorted(clients, key=lambda pair: pair[0]):
                time.sleep(max(0.0, began_s + after_s - time.monotonic()))
                _end(client)
        self._service.repair()
        for shipment in shipments:
            self._push_until_sent(shipment)
        self.tally.faults["postgres away for a while"] += 1

    def full_disk(self) -> None:
        """Limit the length of the client's files, which truncates records and artefacts."""
        shipment = self._ship(in_spool=False)
        self._wait(
            self._push(shipment, max_file_bytes=self._draw.randrange(1, 2 * _ARTEFACT_BYTES))
        )
        for path in shipment.spool.waiting:
            RunRecord.read(path)  # raises RecordError for a truncated record
        self.tally.faults["disk full"] += 1
        self._push_until_sent(shipment)

    def _time_undisturbed_push(self) -> tuple[float, float]:
        """Seconds until the client sends, and until everything is sent."""
        shipment = self._ship()
        began_s = time.monotonic()
        client = self._push(shipment)
        while not shipment.is_in_spool(shipment.filed) and client.poll() is None:
            time.sleep(_POLL_S)
        started_s = time.monotonic() - began_s
        self._wait(client)
        sent_s = time.monotonic() - began_s
        self._push_until_sent(shipment)
        return started_s, sent_s

    def _ship(self, *, in_spool: bool = True) -> Shipment:
        folder = self._service.folder / f"shipment-{self.tally.sent}"
        artefacts = ArtefactFolder(folder / "files" / "artefacts")
        (folder / "files").mkdir(parents=True)
        file = folder / "trace.bin"
        file.write_bytes(self._draw.randbytes(_ARTEFACT_BYTES))
        shipment = Shipment(folder, self._copy((artefacts.add(file),)), self._copy(()))
        shipment.filed.write(folder / "files" / "filed.json.gz")
        if in_spool:
            shipment.spool.submit(shipment.spooled, artefacts)
        else:
            shipment.spooled.write(folder / "files" / "spooled.json.gz")
        self.tally.sent += 2
        return shipment

    def _copy(self, artefacts: tuple[Artefact, ...]) -> RunRecord:
        number = self._draw.randrange(10**9)
        copy = copy_of(
            self._real, self._draw, project=f"chaos/{number % _PROJECT_COUNT}", commit=number
        )
        return copy.model_copy(update={"artefacts": artefacts})

    def _push(self, shipment: Shipment, *, max_file_bytes: int | None = None) -> Popen[bytes]:
        self.tally.pushes += 1
        arguments = (
            "push",
            shipment.folder / "files",
            "--spool",
            shipment.spool.folder,
            "--url",
            self._service.url,
        )
        output = shipment.folder / f"push-{self.tally.pushes:04}.txt"
        return self._service.client(
            *arguments, folder=shipment.folder, output=output, max_file_bytes=max_file_bytes
        )

    def _wait_for_random_moment(
        self, client: Popen[bytes], shipment: Shipment, victim: str
    ) -> list[RunRecord]:
        """Wait until the moment to kill; returns the records that were in the spool before."""
        spooled = {shipment.spooled.run_id: shipment.spooled}
        earliest_s = (
            0 if victim == "client" else self._started_s * 0.9
        )  # while the server is in use
        until_s = time.monotonic() + self._draw.uniform(earliest_s, self._sent_s)
        while time.monotonic() < until_s and client.poll() is None:
            if shipment.is_in_spool(shipment.filed):
                spooled[shipment.filed.run_id] = shipment.filed
            time.sleep(_POLL_S)
        return list(spooled.values())

    def _kill(self, victim: str, client: Popen[bytes]) -> None:
        if victim == "client":
            client.kill()
            client.wait()
        elif victim == "api":
            self._service.kill_api()
        elif victim == "postgres":
            self._service.kill_postgres()
        elif victim == "worker":
            self._service.kill_workers()
        else:
            self._service.kill_backend(self._draw)

    def _wait(self, client: Popen[bytes]) -> bool:
        """Wait for a push; True if it sent everything."""
        try:
            return client.wait(_CLIENT_TIMEOUT_S) == 0
        except TimeoutExpired:
            _end(client)
            return False

    def _push_until_sent(self, shipment: Shipment) -> None:
        for _ in range(_MAX_PUSHES):
            if self._wait(self._push(shipment)):
                break
        for record in (shipment.spooled, shipment.filed):
            self.tally.check_record(self._service.engine, record)


def _end(client: Popen[bytes]) -> None:
    client.terminate()
    client.wait()


def run_chaos(
    real: RunRecord,
    folder: Path,
    *,
    kills: int,
    seed: int,
    outage_s: float = 0.0,
    full_disks: int = 0,
) -> Tally:
    """Run all rounds in an empty folder."""
    draw = random.Random(seed)
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    draw.shuffle(victims)
    with Service(folder) as service:
        chaos = Chaos(service, real, draw)
        for done, victim in enumerate(victims, start=1):
            chaos.kill_during_push(victim)
            if done % 20 == 0:
                print(f"{done} of {kills} kills", file=sys.stderr)
        if outage_s:
            chaos.outage(outage_s)
        for _ in range(full_disks):
            chaos.full_disk()
        chaos.tally.check_count(service.engine)
        chaos.tally.check_queue(service.engine)
    return chaos.tally


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, help="a record of a real run")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--outage-seconds", type=float, default=60.0, help="time without the database"
    )
    parser.add_argument(
        "--full-disks", type=int, default=10, help="number of pushes with a full disk"
    )
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="roofwatch-chaos-"))
    print(f"in {folder}, which is kept after an error", file=sys.stderr)
    tally = run_chaos(
        RunRecord.read(options.record),
        folder,
        kills=options.kills,
        seed=options.seed,
        outage_s=options.outage_seconds,
        full_disks=options.full_disks,
    )
    print(json.dumps(vars(tally), indent=2))
    if not tally.is_clean:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
