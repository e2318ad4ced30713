"""Sizes of what the judge and a candidate's process exchange; imports nothing, as the process is
isolated before it loads torch.
"""

MAX_MESSAGE_BYTES = 2**16
