"""A rank as it sees itself: one of several processes that do every job together, each on its part of the data.

They form torch.distributed's default group, in which implementations find each other: over gloo between CPU processes;
between GPUs over NCCL, rank r on GPU r, with gloo for what the ranks tell each other on the host.
"""

from __future__ import annotations

import os

import torch
from torch import distributed

from roofwatch.collector.workers.protocol import RankPlace
from roofwatch.spec import UnsupportedError


class Rank:
    """One rank of a group that runs on one machine.

    Args:
        place: Which one it is.
        device: `cpu` or `cuda`.
    """

    def __init__(self, place: RankPlace, device: str) -> None:
        self._place = place
        self._device = device

    @property
    def count(self) -> int:
        return self._place.count

    def join(self) -> None:
        """Form the group, which waits for the other ranks; once it is there, nothing.

        Raises:
            UnsupportedError: torch or the machine cannot serve that many ranks.
        """
        self._require_machine()
        if distributed.is_initialized():
            return
        if self._device == "cuda":
            torch.cuda.set_device(self._place.index)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # whatever this machine's name resolves to
        meeting_point = distributed.FileStore(  # type: ignore[attr-defined]  # torch's annotations leave it out
            str(self._place.rendezvous), self._place.count
        )
        distributed.init_process_group(
            "gloo" if self._device == "cpu" else "cpu:gloo,cuda:nccl",
            store=meeting_point,
            rank=self._place.index,
            world_size=self._place.count,
        )

    def align(self) -> None:
        """Wait for the other ranks: on the CPU here and now, on a GPU on its current stream.

        A sum of one number is the barrier. torch's own would hold up the host too, and a GPU that waits for its host
        would time the launch.
        """
        distributed.all_reduce(torch.zeros(1, device=self._device))

    def slowest_ns(self, elapsed_ns: float) -> float:
        """The longest of all ranks' times, which each of them gets: what they decide by it they decide alike."""
        longest = torch.tensor([elapsed_ns], dtype=torch.float64)
        distributed.all_reduce(longest, distributed.ReduceOp.MAX)
        return float(longest)

    def _require_machine(self) -> None:
        if not distributed.is_available():
            raise UnsupportedError("needs torch.distributed, which this torch was built without")
        if self._device == "cpu":
            return
        if not distributed.is_nccl_available():
            raise UnsupportedError("needs NCCL, which this torch was built without")
        gpu_count = torch.cuda.device_count()
        if gpu_count < self._place.count:
            raise UnsupportedError(f"needs {self._place.count} GPUs, one for each rank; torch sees {gpu_count}")
