"""Bugs of Liger-Kernel's options: the release that has each, and the one that fixed it."""

from bench.public_bugs.known_bugs import LIGER, Bug

SUITE = "bench_liger_options.py"
LIGER_OPTION_BUGS = (
    Bug(
        package=LIGER,
        kernel="layer_norm_in_single",
        broken="0.5.3",
        fixed="0.5.4",
        claim="results",
        symptom="columns past the end count",
        suite=SUITE,
    ),
    Bug(
        package=LIGER,
        kernel="layer_norm_forward",
        broken="0.6.0",
        fixed="0.6.1",
        claim="values",
        symptom="sums are added up in bfloat16",
        suite=SUITE,
    ),
    Bug(
        package=LIGER,
        kernel="head_loss_of_each_token",
        broken="0.8.1",
        fixed="0.8.2",
        claim="results",
        symptom="upstream gradients of rows after the first are ignored (#1298)",
        suite=SUITE,
    ),
    Bug(
        package=LIGER,
        kernel="head_loss",
        broken="0.7.0",
        fixed="0.8.0",
        claim="results",
        symptom="with a bias, fails if no gradient is needed",
        suite=SUITE,
    ),
    Bug(
        package=LIGER,
        kernel="partial_rotary",
        broken="0.8.4",
        fixed="0.8.5",
        claim="results",
        symptom="columns that are not rotated are",
        suite=SUITE,
    ),
    Bug(
        package=LIGER,
        kernel="sequence_policy",
        broken="0.8.4",
        fixed="0.8.5",
        claim="results",
        symptom="the gradient lacks the divergence of the other tokens",
        suite=SUITE,
    ),
    Bug(
        package=LIGER,
        kernel="rms_norm",
        broken="0.3.1",
        fixed="0.4.0",
        claim="cost",
        symptom="the weight's gradient of each row is stored",
    ),
)
