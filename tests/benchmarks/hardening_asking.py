"""What does a hostile server cost whoever asks it? Receivers of alerts, APIs that `diagnose` reads, and metrics pages: the asking process's time and memory.

python -m tests.benchmarks.hardening_asking [--write] [--only NAME] [--build before]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks import results
from tests.benchmarks.hardening import cpu_s, rss_mib
from tests.conftest import ROOT

MOST_S: Final = 400.0  # that are waited for an end
OK: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
Talk = Callable[[socket.socket], None]

# --- the hostile side ---


def silent(made: socket.socket) -> None:
    """Takes the question and never answers."""
    while made.recv(65_536):
        pass


def drip(head: bytes) -> Talk:
    """Sends a byte a second after `head`, for ever."""

    def talk(made: socket.socket) -> None:
        made.sendall(head)
        while True:
            time.sleep(1.0)
            made.sendall(b"x")

    return talk


def flood(head: bytes, piece: bytes) -> Talk:
    """Sends `piece` again and again after `head`, for ever."""

    def talk(made: socket.socket) -> None:
        made.sendall(head)
        while True:
            made.sendall(piece)

    return talk


def answers(make: Callable[[str], bytes]) -> Talk:
    """Answers each question by its path, on a connection that is kept."""

    def talk(made: socket.socket) -> None:
        waiting = b""
        while True:
            while b"\r\n\r\n" not in waiting:
                part = made.recv(65_536)
                if not part:
                    return
                waiting += part
            asked, _, waiting = waiting.partition(b"\r\n\r\n")
            made.sendall(make(asked.split(b" ")[1].decode()))

    return talk


def whole(body: bytes, head: bytes = OK) -> bytes:
    """An answer with its length."""
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def refusing(path: str) -> bytes:
    """Every question is too large; labels are listed."""
    if path.startswith("/api/search"):
        return whole(b"too much", b"HTTP/1.1 422 No\r\n")
    return whole(b"{}")


_turn = itertools.count()


def changing_page(path: str) -> bytes:
    """A page of 20,000 counters whose labels were on no page before, while another counter falls: each page looks like another process."""
    at = next(_turn)
    lines = [
        "# TYPE vllm:generation_tokens_total counter",
        f'vllm:generation_tokens_total{{model_name="m"}} {1e9 - at}',
        "# TYPE vllm:request_success_total counter",
        *(
            f'vllm:request_success_total{{finished_reason="r{at}-{n}",model_name="m"}} 1'
            for n in range(20_000)
        ),
    ]
    return whole("\n".join([*lines, ""]).encode())


def wide_page(path: str) -> bytes:
    """One sample with two million labels, an equals sign apart from its value."""
    labels = ",".join(f'l{n} ="x"' for n in range(1_500_000))
    return whole(f"# TYPE vllm:x gauge\nvllm:x{{{labels}}} 1\n".encode())


@contextlib.contextmanager
def listening(talk: Talk) -> Iterator[int]:
    """The port at which `talk` has each connection."""
    made = socket.create_server(("127.0.0.1", 0), backlog=64)

    def one(connected: socket.socket) -> None:
        with connected, contextlib.suppress(OSError):
            talk(connected)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(made.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(made.getsockname()[1])
    finally:
        made.shutdown(socket.SHUT_RDWR)
        made.close()


# --- the asking side, in a process of its own ---


def ask_webhook(port: int) -> str:
    """One alert to a webhook."""
    from overrun.analysis.front.alerts.settings import Receiver

    return _delivered(Receiver(kind="webhook", name="hook", url=f"http://127.0.0.1:{port}"))


def ask_mail(port: int) -> str:
    """One alert to a mail server."""
    from overrun.analysis.front.alerts.settings import Receiver

    return _delivered(
        Receiver("email", "m", host="127.0.0.1", port=port, tls="none", sender="a@b", to=("c@d",))
    )


def _delivered(receiver: object) -> str:
    from overrun.analysis.front.alerts.delivery import Failed, send
    from tests.analysis.front.alerts.test_messages import FIRED

    try:
        send(FIRED, receiver, time.time(), 60.0)  # type: ignore[arg-type]
    except Failed as error:
        return f"failed: {error}"
    return "delivered"


def ask_api(port: int) -> str:
    """One question to an API."""
    from overrun.collector.errors import CollectorError
    from overrun.collector.sources.remote.fetching import Fetcher

    with Fetcher(f"http://127.0.0.1:{port}", {}, sleep=lambda _: None) as fetch:
        try:
            fetch.get("/api")
        except CollectorError as error:
            return f"{type(error).__name__}: {error}"[:100]
    return "read"


def ask_month(port: int) -> str:
    """A month of Tempo's traces, asked for as fast as it answers."""
    from overrun.collector.errors import CollectorError
    from overrun.collector.sources.remote import address, pull

    taker = pull.Taker(lambda signal, body: None, lambda: None, lambda share: None)
    tempo, now_s = address.Address("tempo", f"http://127.0.0.1:{port}"), time.time()
    try:
        done = pull.pull(
            pull.Wanted([tempo], "", now_s - 30 * 86_400, now_s),
            pull.Progress(None),
            taker,
            environment={},
            sleep=lambda _: None,
        )
    except CollectorError as error:
        return f"{type(error).__name__}: {error}"[:100]
    return f"{done.asked} questions"


def ask_pages(port: int) -> str:
    """A metrics page, read every 0.2 s for 30 s by a scraper with a store of its own."""
    import asyncio

    from overrun.analysis.assembly.assemble import assemble
    from overrun.collector.config import CollectorSettings, PrivacySettings
    from overrun.collector.ingest.pipeline import Pipeline
    from overrun.collector.sources import scrape
    from overrun.collector.store.database import open_store

    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "t.db"
        store = open_store(db, create=True)
        pipeline = Pipeline(
            store, CollectorSettings(db=str(db)), PrivacySettings(), assemble, serving=True
        )

        async def scraping() -> None:
            target = scrape.Target(f"http://127.0.0.1:{port}/metrics", None, 0.2)
            reader = scrape.Scraper([target], pipeline.writer)
            await asyncio.sleep(30)
            await reader.close()

        asyncio.run(scraping())
        points = pipeline.writer.counters.points
        pipeline.close()
        return f"{points} points, file {db.stat().st_size >> 20} MiB"


ASK: Final = {f.__name__: f for f in (ask_webhook, ask_mail, ask_api, ask_month, ask_pages)}
ATTACKS: Final[dict[str, tuple[Callable[[int], str], Talk]]] = {
    "a webhook that never answers": (ask_webhook, silent),
    "a webhook that answers a byte a second": (ask_webhook, drip(b"HTTP/1.1 200 OK\r\nx-a: ")),
    "a webhook that answers without an end": (ask_webhook, flood(OK + b"\r\n", b"x" * 65_536)),
    "a mail server that greets a byte a second": (ask_mail, drip(b"220 ")),
    "a mail server that greets without an end": (
        ask_mail,
        flood(b"220-a\r\n", b"220-\r\n" * 9_999),
    ),
    "an API that answers a byte a second": (ask_api, drip(OK + b"content-length: 9999\r\n\r\n")),
    "an API that answers without an end": (ask_api, flood(OK + b"\r\n", b"1," * 32_768)),
    "an API that answers 32 MB of empty lists": (
        ask_api,
        answers(lambda _: whole(b"[" + b"[]," * 11_000_000 + b"0]")),
    ),
    "an API that answers 32 MB of small objects": (
        ask_api,
        answers(lambda _: whole(b"[" + b'{"":0},' * 4_700_000 + b"0]")),
    ),
    "an API that finds every question too large": (ask_month, answers(refusing)),
    "a metrics page that comes a byte a second": (ask_pages, drip(OK + b"\r\n")),
    "a metrics page without an end": (ask_pages, flood(OK + b"\r\n", b"a 1\n" * 16_384)),
    "a metrics page that redirects to itself": (
        ask_pages,
        answers(lambda path: whole(b"", b"HTTP/1.1 302 Found\r\nlocation: /metrics\r\n")),
    ),
    "a metrics page with other labels each time": (ask_pages, answers(changing_page)),
    "a metrics page with 1.5 million labels": (ask_pages, answers(wide_page)),
}


@dataclass
class Cost:
    """What the asking process spent, and how it ended."""

    took_s: float
    cpu_s: float
    peak_mib: float
    outcome: str


def run(name: str) -> Cost:
    """One attack."""
    ask, talk = ATTACKS[name]
    with listening(talk) as port:
        command = (sys.executable, "-m", "tests.benchmarks.hardening_asking", "--ask")
        process = subprocess.Popen(
            [*command, ask.__name__, str(port)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        began, spent, peak = time.monotonic(), 0.0, 0.0
        while time.monotonic() - began < MOST_S and process.poll() is None:
            with contextlib.suppress(OSError, IndexError):  # it ends meanwhile
                spent, peak = cpu_s(process.pid), max(peak, rss_mib(process.pid))
            time.sleep(0.02)
        took_s = time.monotonic() - began
        ended = process.poll() is not None
        process.kill()
        said, _ = process.communicate()
    outcome = said.strip() if ended else f"not ended after {MOST_S:.0f} s"
    return Cost(took_s, spent, peak, outcome)


def main() -> None:
    """Run the attacks and print a row each; or be the asking side of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="attacks whose name holds this text")
    parser.add_argument("--build", default="after", help="what the rows are called in docs/results")
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    results.add_write_flag(parser)
    chosen = parser.parse_args()
    if chosen.ask:
        print(ASK[chosen.ask[0]](int(chosen.ask[1])))
        return
    figures = []
    for name in ATTACKS:
        if chosen.only and chosen.only not in name:
            continue
        cost = run(name)
        print(
            f"{name:45} {cost.took_s:5.1f} s {cost.cpu_s:6.1f} CPU s {cost.peak_mib:6.0f} MiB  {cost.outcome}",
            flush=True,
        )
        figures.append(
            results.measured(
                f"{name}, {chosen.build}",
                round(cost.peak_mib),
                "MiB peak",
                script="python -m tests.benchmarks.hardening_asking --write",
                more={
                    "CPU s": round(cost.cpu_s, 1),
                    "took s": round(cost.took_s, 1),
                    "answers": cost.outcome,
                },
            )
        )
    if chosen.write:
        results.record("hardening", figures)


if __name__ == "__main__":
    main()
