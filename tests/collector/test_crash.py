"""kill -9 at any moment: what was acknowledged is there, once; what was not may be sent again and counts once."""

import itertools
import random
import threading
from pathlib import Path

import httpx

from collector.store import open_store
from collector.writer import TRACES
from tests.collector.conftest import PROTOBUF, body, opened, span
from tests.conftest import StartServer

ROUNDS = 10
SENDERS = 4
SPANS = 40  # of one body


def test_acknowledged_spans_survive_kill_9_exactly_once(tmp_path: Path, start_server: StartServer) -> None:
    db = tmp_path / "t.db"
    dice = random.Random(20_261_121)
    numbers = itertools.count(1)
    acknowledged: set[int] = set()
    unsure: list[int] = []  # sent, but the answer never came
    for round_ in range(ROUNDS):
        server = start_server(db)
        again, unsure = unsure, []
        enough = threading.Event()
        lock = threading.Lock()
        wanted = len(acknowledged) + dice.randint(1, 60)

        def send(url: str, first: list[int], enough: threading.Event, lock: threading.Lock, wanted: int, unsure: list[int]) -> None:
            with httpx.Client(base_url=url, headers=PROTOBUF, trust_env=False, verify=False, timeout=30) as client:
                for number in itertools.chain(first, numbers):
                    try:
                        status = client.post("/v1/traces", content=body_of(number)).status_code
                    except httpx.HTTPError:
                        with lock:
                            unsure.append(number)
                        return
                    assert status == 200
                    with lock:
                        acknowledged.add(number)
                        if len(acknowledged) >= wanted:
                            enough.set()

        shares = [again[i::SENDERS] for i in range(SENDERS)]
        threads = [threading.Thread(target=send, args=(server.http, share, enough, lock, wanted, unsure)) for share in shares]
        for t in threads:
            t.start()
        assert enough.wait(60)
        server.kill()
        for t in threads:
            t.join(60)
        # What a sender had still to repeat when it was cut off is unsure as well.
        unsure += [n for n in again if n not in acknowledged and n not in unsure]
        _check(db, acknowledged, set(unsure), f"round {round_}")
    assert len(acknowledged) > ROUNDS
    with opened(db) as pipeline:
        for number in [*unsure, *sorted(acknowledged)[:50]]:
            pipeline.writer.submit(TRACES, body_of(number)).result(30)
    _check(db, acknowledged | set(unsure), set(), "at the end")
    store = open_store(db, create=False)
    assert store.connection.execute("select count(*), count(distinct trace_id) from v_requests").fetchone() == (len(acknowledged | set(unsure)),) * 2
    store.close()


def body_of(number: int) -> bytes:
    """The body of a number, always the same bytes: one request of SPANS spans."""
    call = span(number, 2, 1, name="chat m", ms=5, attributes={"gen_ai.operation.name": "chat"})
    return body([span(number, 1, name="POST /chat", kind=2), call, *(span(number, i, 1) for i in range(3, SPANS + 1))])


def _check(db: Path, sure: set[int], perhaps: set[int], when: str) -> None:
    """Every span of `sure` is stored once, of `perhaps` once or not at all (a body is stored whole or not at all), and nothing else."""
    store = open_store(db, create=False)
    try:
        for table in ("spans", "(select distinct on (trace_hi, trace_lo, span_id) trace_lo, span_id from spans)"):
            found = store.connection.execute(f"select trace_lo, count(*), count(distinct span_id) from {table} group by trace_lo").fetchall()
            assert {(rows, spans) for _, rows, spans in found} <= {(SPANS, SPANS)}, when
            stored = {number for number, _, _ in found}
            assert sure <= stored <= sure | perhaps, when
        row = store.connection.execute("select count(*) from v_spans").fetchone()
        assert row == (SPANS * len(stored),), when
    finally:
        store.close()
