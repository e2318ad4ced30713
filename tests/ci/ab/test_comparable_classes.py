from roofwatch.ci.ab.comparable import differences_of
from tests.builders import make_environment


def test_equal_environments_do_not_differ() -> None:
    assert differences_of([make_environment(), make_environment()]) == []
    assert differences_of([make_environment()]) == []


def test_the_toolchain_comes_first_and_may_move_times() -> None:
    newer = make_environment(os="Linux 6.9", torch_version="2.14.0", cuda_version="13.1")
    found = differences_of([make_environment(), newer])

    assert [(one.name, one.may_move_times) for one in found] == [
        ("torch version", True),
        ("cuda version", True),
        ("os", False),
    ]
    assert found[0].values == ("2.13.0", "2.14.0")
    assert found[1].values == ("not known", "13.1")
