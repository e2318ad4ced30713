"""Which keys a query sees, for references and counts."""

from torch import Tensor

from roofwatch import Case


def window_of(case: Case) -> int:
    """How many of the newest keys a query sees; 0 for all of them."""
    if case.choice("mask") == "window":
        return case["window"]
    return 0


def hidden_pairs(age: Tensor, window: int) -> Tensor:
    """Whether a causal query does not see a key.

    Args:
        age: Position of the query less that of the key.
        window: As `window_of` has it.
    """
    is_later = age < 0
    if window == 0:
        return is_later
    return is_later | (age >= window)
