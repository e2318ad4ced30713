"""Who asks whether the server is ready costs the database one look, however many ask."""

from __future__ import annotations

import asyncio
import threading

import pytest

from roofwatch.api.readiness import Readiness


def test_those_who_ask_meanwhile_share_a_look_and_the_next_one_has_another() -> None:
    looks: list[int] = []
    may_end = threading.Event()

    def look() -> bool:
        looks.append(len(looks))
        may_end.wait()
        return len(looks) == 1

    async def run() -> None:
        readiness = Readiness(look)
        asking = [asyncio.create_task(readiness.has_room()) for _ in range(50)]
        for _ in range(3):
            await asyncio.sleep(0)  # all of them ask
        asking[0].cancel()
        may_end.set()

        assert await asyncio.gather(*asking[1:]) == [True] * 49
        assert looks == [0]
        assert await readiness.has_room() is False
        assert looks == [0, 1]

    asyncio.run(run())


def test_what_is_wrong_is_told_to_each_who_asks() -> None:
    def look() -> bool:
        raise RuntimeError("no schema")

    async def run() -> None:
        readiness = Readiness(look)
        told = await asyncio.gather(*(readiness.has_room() for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in told] == ["no schema"] * 3
        with pytest.raises(RuntimeError):
            await readiness.has_room()

    asyncio.run(run())
