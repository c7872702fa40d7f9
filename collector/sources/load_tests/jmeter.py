"""JMeter's results as CSV (.jtl or .csv): a row a sample.

Source: jmeter.apache.org, "CSV Log format": `timeStamp` in ms since 1970, `elapsed` in ms, `success`. Its `Latency` is the first byte of the answer, which
is no token.
"""

from __future__ import annotations

import csv
import io
from typing import Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    say_bounded,
    say_load,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import MS, failure, status_of, text_of

_COLUMNS: Final = ("timeStamp", "elapsed", "success")


def is_csv(head: str) -> bool:
    """Whether the first line of a file is that of its results."""
    return set(_COLUMNS) <= {name.strip('" \r') for name in head.split(",")}


def jmeter_csv(text: str) -> LoadTest:
    """The requests of a file as one run."""
    out, requests = LoadTest("jmeter"), []
    users = unmeasured = 0
    for row in csv.DictReader(io.StringIO(text)):
        try:
            sent, took = int(row["timeStamp"] or ""), int(row["elapsed"] or "")
        except (ValueError, TypeError):
            unmeasured += 1
            continue
        users = max(users, int(row["allThreads"]) if (row.get("allThreads") or "").isdigit() else 0)
        status = row.get("responseCode")
        error = None
        if str(row.get("success")).lower() == "false":
            error = failure(status_of(status) or "failed")[0]
        requests.append(
            Request(
                sent * MS,
                took * MS,
                error=error,
                status_code=status_of(status),
                route=text_of(row.get("label")),
            )
        )
    if not requests:
        raise BadPayload("its results hold no request")
    run = Run(say_load(None, users or None) or "run 1", requests, in_flight=users or None)
    out.requests, out.runs = list(requests), [run]
    say_bounded(out, users or None, "allThreads")
    say_unmeasured(out, unmeasured)
    return out
