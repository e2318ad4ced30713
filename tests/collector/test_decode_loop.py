"""The decode loop on a virtual clock, against times computed by hand."""

from roofwatch.collector.decode_loop import ARRIVALS, Request, Served, serve


def served(*requests: Request, most: int = 8) -> list[Served]:
    return serve(requests, prefill_ns_per_token=1.0, step_ns=lambda count: 100.0 + 10 * count, most_sequences=most)


def test_a_request_alone_has_its_prompt_and_one_step_for_each_further_token() -> None:
    (one,) = served(Request(arrival_ns=1_000, prompt_tokens=50, output_tokens=3))

    assert list(one.token_ns) == [1_050, 1_160, 1_270]
    assert (one.ttft_ns, one.tpot_ns) == (50, 110)


def test_a_request_that_arrives_later_joins_between_two_steps_and_delays_the_others() -> None:
    first, second = served(Request(0, 50, 3), Request(100, 40, 2))

    # the second waits for the step that ends at 160, then its prompt runs, then a step of two sequences
    assert list(first.token_ns) == [50, 160, 320]
    assert list(second.token_ns) == [200, 320]
    assert second.ttft_ns == 100


def test_a_full_batch_makes_requests_wait() -> None:
    first, second = served(Request(0, 50, 2), Request(0, 50, 2), most=1)

    assert second.ttft_ns == first.token_ns[-1] + 50


def test_a_request_of_one_token_has_no_time_per_further_token() -> None:
    (one,) = served(Request(0, 10, 1))

    assert (one.token_ns, one.tpot_ns) == ((10,), None)


def test_every_stored_request_is_served_in_full() -> None:
    done = serve(ARRIVALS, prefill_ns_per_token=1e3, step_ns=lambda _: 1e6, most_sequences=4)

    assert {one.request for one in done} == set(ARRIVALS)
    assert all(len(one.token_ns) == one.request.output_tokens for one in done)
