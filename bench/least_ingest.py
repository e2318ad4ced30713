"""The least that an ingest does of a record before its rows can be sent, were the record no objects but plain lists and
dictionaries already: write it, hash that, and gather and pack the samples.
"""

from __future__ import annotations

import hashlib
import time
from itertools import chain

import numpy as np
import orjson

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.samples import pack
from roofwatch.db.ingest.saying import write


def least_processor_s(record: RunRecord, repeats: int = 5) -> float:
    """Processor time of it: the least of some times, as others on the machine only add to it."""
    document = orjson.loads(b"".join(write(record, [])))
    lengths = [len(one.samples_ns) for one in record.measurements]
    spent_s = []
    for _ in range(repeats):
        began_s = time.process_time()
        hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()
        blocks = chain.from_iterable(one["blocks"] for one in document["measurements"])
        samples = chain.from_iterable(block["samples_ns"] for block in blocks)
        pack([b""] * len(lengths), np.fromiter(samples, dtype=np.float64, count=sum(lengths)), lengths)
        spent_s.append(time.process_time() - began_s)
    return min(spent_s)
