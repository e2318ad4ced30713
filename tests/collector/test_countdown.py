"""Notes about the time that is left."""

from roofwatch.collector.runs.countdown import Countdown
from roofwatch.collector.runs.run_plan import Progress, Steps


def test_the_time_left_shrinks_as_blocks_are_taken() -> None:
    notes: list[Progress] = []
    clock = iter([0.0, 10.0, 40.0, 50.0, 80.0, 100.0])
    countdown = Countdown(5, Steps(notes.append), clock_s=lambda: next(clock))

    for _ in range(5):
        countdown.step()

    # 30 s lie between notes, and the last block needs none
    assert [note.text for note in notes] == [
        "2 of 5 blocks taken: about 60 s left",
        "4 of 5 blocks taken: about 20 s left",
    ]
    assert all(note.is_to_stay for note in notes)
