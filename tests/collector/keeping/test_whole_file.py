"""Files that are there whole or not at all, whoever else writes them."""

from pathlib import Path

from collector.keeping.whole_file import whole_file


def test_two_that_write_one_file_at_once_each_put_a_whole_one_there(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    with whole_file(path) as first:
        first.write(b"of the first, which is longer")
        with whole_file(path) as second:
            second.write(b"of the second")
        assert path.read_bytes() == b"of the second"

    assert path.read_bytes() == b"of the first, which is longer"
    assert list(tmp_path.iterdir()) == [path]
