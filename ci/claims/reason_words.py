"""Reasons of verdicts in words, the same in every output."""

from roofwatch.model.verdict import Reason

_REASON_WORDS = {
    Reason.NOISE: "too noisy",
    Reason.TARGET_LOST: "lost target",
    Reason.TOO_FEW_BLOCKS: "fewer than three blocks",
    Reason.MULTIPLICITY: "not significant after correcting for multiple comparisons",
    Reason.FOREIGN_CODE: "the measured code is not that of the commit",
    Reason.NOT_COMPARABLE: "not comparable",
    Reason.NOT_PAIRED: "separate runs",
    Reason.SAME_MACHINE_CODE: "identical machine code: host, clock or configuration changed, not "
    "the kernel",
    Reason.SAME_SOURCES: "same sources, other times: the machine changed, or something that the "
    "sources do not name",
    Reason.THROTTLED: "device throttled or shared with another process",
    Reason.HOST_BOUND: "the host was slower than the device",
    Reason.CLOCK_CHANGED: "clock changed; cycle count did not",
    Reason.MEMORY_CHANGED: "the memory of a launch changed",
    Reason.HOST_CHANGED: "the host time of a launch changed, not the kernel on the device",
    Reason.REMOVED_CASE: "removed benchmark",
    Reason.OFFSET_OVERFLOW: "a 32-bit offset overflows at a declared size",
    Reason.OFFSET_LIMIT_CHANGED: "offsets fit up to another size",
    Reason.OPERATOR_COST_CHANGED: "other bytes or waits in torch",
    Reason.WRONG_RESULT: "wrong result",
    Reason.FAILED: "fails",
    Reason.FIXED: "works again",
    Reason.ALREADY_FAILING: "still failing",
    Reason.NEW_CASE: "new benchmark",
    Reason.NOT_TIMED: "time not measured",
    Reason.SAME_CODE: "same code",
}


def reason_words(reason: Reason) -> str:
    return _REASON_WORDS.get(reason, str(reason).replace("_", " "))
