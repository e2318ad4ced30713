"""Kill the client, the server and the database at random points of an ingest, and count what was lost or doubled.

Each round puts two records on their way with `roofwatch push`, one that waits in the spool and one that is a file, and
300 kB that belong to the first; kills one process with SIGKILL at a point drawn anew; looks whether what was
acknowledged is there; starts again what was killed and pushes again; and looks whether everything is there, once, with
the content that it was sent with. Then the database is away for a while, and then the disk of the client is full.

    PYTHONPATH=. python bench/chaos.py record.json.gz --kills 200

What each push says is kept. Of a record that is missing it is told where else it is and what its pushes said, and the
folder with all of it and the logs of the servers stays.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.ledger import Tally, check_count, check_record, is_there, list_missing
from bench.service import Service
from bench.shipment import Push, Shipment
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.record.record import Artefact, RunRecord

VICTIMS = ("client", "api", "postgres", "backend")
WAYS_TO_BE_AWAY = ("killed", "stopped", "held")
"""By SIGKILL; by itself; there, and doing nothing, so that who asks it gets no answer."""

_PROJECTS = 20
_ARTEFACT_BYTES = 300_000
_CLIENT_S = 120.0
_PUSHES = 8
_POLL_S = 0.001


@dataclass(frozen=True)
class Outage:
    """The database is away."""

    seconds: float
    how: str = "killed"
    """One of WAYS_TO_BE_AWAY."""
    runners: int = 4
    """Machines that push meanwhile."""


class Chaos:
    """The rounds.

    Args:
        service: Runs.
        real: A record of a real run, of which each record here is a copy as another run.
        draw: All that is random comes from it.
    """

    def __init__(self, service: Service, real: RunRecord, draw: random.Random) -> None:
        self.tally = Tally()
        self._service = service
        self._real = real
        self._draw = draw
        self._shipments: list[Shipment] = []
        self._started_s, self._sent_s = self._undisturbed()

    def round(self, victim: str) -> None:
        """Kill one process within one ingest."""
        shipment = self._ship()
        client = self._push(shipment)
        seen = self._wait_for_a_point(client, shipment, victim)
        self._kill(victim, client)
        gone = [record for record in seen if not shipment.is_in_spool(record)]
        self._count(victim)
        self.tally.acknowledged_before_the_kill += len(gone)
        if victim != "client":
            self._service.repair()
        self.tally.acknowledged_and_absent += sum(not is_there(self._service.engine, record) for record in gone)
        client.end()
        self._push_until_sent(shipment)
        self._check(shipment)

    def outage(self, outage: Outage) -> None:
        """Runners post while the database is away, each until it is ended, and once more when it is back."""
        shipments = [self._ship() for _ in range(outage.runners)]
        if outage.how == "killed":
            self._service.kill_postgres()
        elif outage.how == "stopped":
            self._service.stop_postgres()
        else:
            self._service.hold_postgres()
        ends_s = time.monotonic() + outage.seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            # ended anywhere from their start to their second or third try, however slow the machine
            round_s = min(3 * self._sent_s, left_s)
            clients = [(self._draw.uniform(0, round_s), self._push(shipment)) for shipment in shipments]
            began_s = time.monotonic()
            for after_s, client in sorted(clients, key=lambda pair: pair[0]):
                time.sleep(max(0.0, began_s + after_s - time.monotonic()))
                client.end()
        self._service.repair()
        for shipment in shipments:
            self._push_until_sent(shipment)
            self._check(shipment)
        self._count(f"postgres {outage.how} for a while")

    def full_disk(self, times: int) -> None:
        """The client's files cannot grow beyond a length that cuts records and files somewhere."""
        for _ in range(times):
            shipment = self._ship(in_spool=False)
            self._push(shipment, most_file_bytes=self._draw.randrange(1, 2 * _ARTEFACT_BYTES)).wait(_CLIENT_S)
            for path in shipment.spool.waiting:
                RunRecord.read(path)  # raises RecordError where it is half of one
            self._count("disk full")
            self._push_until_sent(shipment)
            self._check(shipment)

    def finish(self) -> None:
        """Count all that is stored once more, and look for what is missing."""
        check_count(self._service.engine, self.tally)
        for shipment in self._shipments:
            for record in list_missing(self._service.engine, shipment.records):
                self.tally.whereabouts.append(shipment.whereabouts(self._service.engine, record))

    def _count(self, fault: str) -> None:
        self.tally.faults[fault] = self.tally.faults.get(fault, 0) + 1

    def _undisturbed(self) -> tuple[float, float]:
        """Seconds until the client sends, and until all is sent."""
        shipment = self._ship()
        began_s = time.monotonic()
        client = self._push(shipment)
        while not shipment.is_in_spool(shipment.filed) and client.is_running:
            time.sleep(_POLL_S)
        started_s = time.monotonic() - began_s
        client.wait(_CLIENT_S)
        sent_s = time.monotonic() - began_s
        self._check(shipment)
        return started_s, sent_s

    def _ship(self, *, in_spool: bool = True) -> Shipment:
        folder = self._service.folder / f"shipment-{self.tally.sent}"
        (folder / "files").mkdir(parents=True)
        file = folder / "trace.bin"
        file.write_bytes(self._draw.randbytes(_ARTEFACT_BYTES))
        artefact = ArtefactFolder(folder / "files" / "artefacts").add(file)
        shipment = Shipment(folder, self._copy((artefact,)), self._copy(()))
        shipment.filed.write(folder / "files" / "filed.json.gz")
        if in_spool:
            shipment.spool.submit(shipment.waiting, ArtefactFolder(folder / "files" / "artefacts"))
        else:
            shipment.waiting.write(folder / "files" / "waiting.json.gz")
        self.tally.sent += 2
        self._shipments.append(shipment)
        return shipment

    def _copy(self, artefacts: tuple[Artefact, ...]) -> RunRecord:
        number = self._draw.randrange(10**9)
        sha = hashlib.sha256(str(number).encode()).hexdigest()[:40]
        # of a history that is not known: with one parent in common all but one would be left by their branch
        commit = self._real.commit.model_copy(update={"sha": sha, "parents": (), "first_parent_count": number})
        return self._real.model_copy(
            update={
                "run_id": uuid.UUID(int=self._draw.getrandbits(128), version=4),
                "project": f"chaos/{number % _PROJECTS}",
                "commit": commit,
                "artefacts": artefacts,
            }
        )

    def _push(self, shipment: Shipment, *, most_file_bytes: int | None = None) -> Push:
        self.tally.pushes += 1
        return shipment.push(self._service, most_file_bytes=most_file_bytes)

    def _wait_for_a_point(self, client: Push, shipment: Shipment, victim: str) -> list[RunRecord]:
        """Until the moment to kill; the records that were in the spool before it."""
        seen = {shipment.waiting.run_id: shipment.waiting}
        began_s = time.monotonic()
        if victim == "client":
            until_s = began_s + self._draw.uniform(0, self._sent_s)
        else:
            # a server is of interest while it is spoken to
            until_s = began_s + self._draw.uniform(self._started_s * 0.9, self._sent_s)
        while time.monotonic() < until_s and client.is_running:
            if shipment.is_in_spool(shipment.filed):
                seen[shipment.filed.run_id] = shipment.filed
            time.sleep(_POLL_S)
        return list(seen.values())

    def _kill(self, victim: str, client: Push) -> None:
        if victim == "client":
            client.kill()
        elif victim == "api":
            self._service.kill_api()
        elif victim == "postgres":
            self._service.kill_postgres()
        else:
            self._service.kill_backend(self._draw)

    def _push_until_sent(self, shipment: Shipment) -> None:
        for _ in range(_PUSHES):
            client = self._push(shipment)
            client.wait(_CLIENT_S)
            if client.is_done:
                return

    def _check(self, shipment: Shipment) -> None:
        for record in shipment.records:
            check_record(self._service.engine, record, self.tally)


def run_chaos(real: RunRecord, folder: Path, *, kills: int, seed: int, outage: Outage | None, full_disks: int) -> Tally:
    """All of it, in an empty folder."""
    draw = random.Random(seed)  # noqa: S311  no secret
    with Service(folder) as service:
        chaos = Chaos(service, real, draw)
        for done, victim in enumerate(_victims(kills, draw), start=1):
            chaos.round(victim)
            if done % 20 == 0:
                print(f"{done} of {kills} kills", file=sys.stderr)
        if outage is not None:
            chaos.outage(outage)
        chaos.full_disk(full_disks)
        chaos.finish()
    return chaos.tally


def _victims(kills: int, draw: random.Random) -> Iterator[str]:
    """Each as often as the others, in random order."""
    every = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    draw.shuffle(every)
    yield from every


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, help="a record of a real run")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--outage-seconds", type=float, default=60.0, help="the database is away for so long")
    parser.add_argument("--outage", choices=WAYS_TO_BE_AWAY, default=WAYS_TO_BE_AWAY[0], help="how it is away")
    parser.add_argument("--runners", type=int, default=4, help="machines that push meanwhile")
    parser.add_argument("--full-disks", type=int, default=10, help="times that the client's disk is full")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    outage = Outage(chosen.outage_seconds, chosen.outage, chosen.runners) if chosen.outage_seconds > 0 else None
    began_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="roofwatch-chaos-"))
    print(f"in {folder}, which stays if anything goes wrong", file=sys.stderr)
    tally = run_chaos(
        RunRecord.read(chosen.record),
        folder,
        kills=chosen.kills,
        seed=chosen.seed,
        outage=outage,
        full_disks=chosen.full_disks,
    )
    if tally.is_clean:
        shutil.rmtree(folder)
    found = asdict(tally) | {"seconds": round(time.monotonic() - began_s), "seed": chosen.seed}
    if chosen.json:
        print(json.dumps(found))
    else:
        counts = {name: found[name] for name in found if name not in {"faults", "whereabouts"}}
        for name, value in (tally.faults | counts).items():
            print(f"{name.replace('_', ' '):<34}{value:>8}")
        print("\n".join(tally.whereabouts), end="")
    return 0 if tally.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
