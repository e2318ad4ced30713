"""Answers with a shape that overflows."""

import sys

import torch

Server = sys.modules["roofwatch.collector.jobs.candidate_main"]._Server
own = Server.answer


def answer(self, **request):
    found = own(self, **request)
    found["outputs"][0]["shape"] = [2**40] * 8 + [0]
    return found


Server.answer = answer


def candidate(x, scale):
    return x * scale
