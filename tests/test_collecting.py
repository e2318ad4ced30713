import contextlib
from pathlib import Path
from threading import Barrier, Thread

from tests.collecting import after_the_first


def test_others_wait_for_the_first_and_then_go_on_side_by_side(tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.touch()
    side_by_side = Barrier(2)
    order: list[str] = []

    def follow() -> None:
        with after_the_first(note):
            order.append("another")
            side_by_side.wait(timeout=60)  # which neither passes alone

    others = [Thread(target=follow) for _ in range(2)]
    with after_the_first(note):
        for other in others:
            other.start()
        order.append("the first")
    for other in others:
        other.join()

    assert order == ["the first", "another", "another"]
    assert not side_by_side.broken


def test_where_the_first_fails_the_next_one_is_first(tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.touch()

    with contextlib.suppress(KeyError), after_the_first(note):
        raise KeyError
    with after_the_first(note):
        assert note.read_text() == "", "the first one was taken for through"

    assert note.read_text() != ""
