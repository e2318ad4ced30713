"""Other values that a case is checked with."""

from enum import StrEnum


class Regime(StrEnum):
    """How the values of a case differ from normally distributed ones."""

    SHIFTED = "shifted"
    """A mean far from zero, and a small variance."""
    PEAKED = "peaked"
    """One value of each row is much larger than the others."""
    SPARSE = "sparse"
    """Nine in ten are zero."""
    LOWERED = "lowered"
    """Logits far below zero, which a softmax does not see."""
    DISTANT = "distant"
    """Logits so far apart that most probabilities are zero in single precision."""
    EQUAL = "equal"
    """All values of a row are equal."""
    INFINITE = "infinite"
    """One in eight is -inf, as masks set it."""
    SHARP = "sharp"
    """Large scores: one key of each query dominates."""
    UNIFORM = "uniform"
    """Scores near zero, so all keys count equally."""
    SATURATED = "saturated"
    """Large values, where sigmoid and tanh are flat."""
    CANCELLING = "cancelling"
    """Most of a sum cancels."""
    DENORMAL = "denormal"
    """Near the smallest numbers of the dtype."""
    MASKED = "masked"
    """Some rows of a mask keep nothing, as those of padding."""
