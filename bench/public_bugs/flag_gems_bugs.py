"""Bugs of FlagGems: the release that has each, and the one that fixed it."""

from bench.public_bugs.known_bugs import Bug

FLAG_GEMS = "flag-gems"
FLAG_GEMS_BUGS = (
    Bug(
        package=FLAG_GEMS,
        kernel="mean",
        broken="4.2.0",
        fixed="5.0.0",
        claim="layouts",
        symptom="memory read as if contiguous",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="mean",
        broken="4.2.0",
        fixed="5.0.0",
        claim="bounds",
        symptom="an expanded input is read past its end",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="addcmul",
        broken="4.2.0",
        fixed="5.0.0",
        claim="results",
        symptom="a smaller first operand is not broadcast",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="nll_loss2d",
        broken="4.2.0",
        fixed="5.0.0",
        claim="results",
        symptom="refuses the targets of an image",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="conv1d",
        broken="4.2.0",
        fixed="5.0.0",
        claim="results",
        symptom="refuses a dilation in a tuple",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="slice_backward",
        broken="5.0.0",
        fixed="5.0.2",
        claim="results",
        symptom="a negative start is not counted from the end",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="sum",
        broken="4.2.0",
        fixed="5.0.0",
        claim="layouts",
        symptom="memory read as if contiguous",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="contiguous",
        broken="4.2.0",
        fixed="5.0.0",
        claim="results",
        symptom="gives its copy an argument that it does not take",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="cat",
        broken="4.2.0",
        fixed="5.0.0",
        claim="results",
        symptom="refuses an empty tensor of one dim",
    ),
    Bug(
        package=FLAG_GEMS,
        kernel="truncated_division",
        broken="5.0.0",
        fixed="5.0.2",
        claim="results",
        symptom="integers are divided by a function for floats",
    ),
)
