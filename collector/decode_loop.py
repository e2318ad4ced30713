"""A decode loop with continuous batching on a virtual clock: service times are measured, queueing is computed.

So the loop repeats on a noisy host. Source of continuous batching: Yu et al., Orca, OSDI 2022.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Request(NamedTuple):
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int


class Served(NamedTuple):
    request: Request
    token_ns: tuple[float, ...]
    """When each output token was ready, on the virtual clock."""

    @property
    def ttft_ns(self) -> float:
        """Time to the first token."""
        return self.token_ns[0] - self.request.arrival_ns

    @property
    def tpot_ns(self) -> float | None:
        """Time per output token, (latency - TTFT) / (N - 1); None for a single token."""
        gaps = len(self.token_ns) - 1
        return (self.token_ns[-1] - self.token_ns[0]) / gaps if gaps else None


_GAPS_MS = (3, 41, 7, 18, 2, 66, 11, 29, 5, 1, 90, 14, 22, 37, 4, 9, 51, 13, 6, 33, 2, 2, 78, 19, 27, 8, 45, 3, 16, 60)
_PROMPTS = (512, 96, 1024, 64, 256, 128, 768, 32, 384, 160)
_OUTPUTS = (64, 24, 8, 96, 40, 16, 128)
ARRIVALS = tuple(
    Request(sum(_GAPS_MS[: at + 1]) * 1_000_000, _PROMPTS[at % len(_PROMPTS)], _OUTPUTS[at % len(_OUTPUTS)])
    for at in range(len(_GAPS_MS))
)
"""The stored requests: 30 in 0.8 s, in bursts, with prompts of 32 to 1024 tokens and outputs of 8 to 128."""


def serve(
    requests: Sequence[Request],
    *,
    prefill_ns_per_token: float,
    step_ns: Callable[[int], float],
    most_sequences: int,
) -> list[Served]:
    """Serve requests in the order of their arrival with continuous batching.

    A waiting request joins before the next step if there is room; its prompt runs alone and gives its first token. Then
    a step gives one token to every running sequence.

    Args:
        requests: In the order of their arrival.
        prefill_ns_per_token: Measured time of a prompt per token.
        step_ns: Measured time of a step with a number of sequences.
        most_sequences: Sequences that run at the same time.
    """
    waiting, running, served = deque(requests), list[tuple[Request, list[float]]](), list[Served]()
    now_ns = 0.0
    while waiting or running:
        if not running:
            now_ns = max(now_ns, waiting[0].arrival_ns)
        while waiting and waiting[0].arrival_ns <= now_ns and len(running) < most_sequences:
            request = waiting.popleft()
            now_ns += prefill_ns_per_token * request.prompt_tokens
            running.append((request, [now_ns]))
        unfinished = [each for each in running if len(each[1]) < each[0].output_tokens]
        if unfinished:
            now_ns += step_ns(len(unfinished))
            for _, tokens in unfinished:
                tokens.append(now_ns)
        served += [Served(one, tuple(tokens)) for one, tokens in running if len(tokens) >= one.output_tokens]
        running = [each for each in unfinished if len(each[1]) < each[0].output_tokens]
    return served
