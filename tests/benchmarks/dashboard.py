"""How fast are the pages? First paint, main content, a rerun with new and with cached answers, bytes, CPU and memory.

`make bench-dashboard ARGS="--requests 1000000"` fills a store with made requests of six hours (slow in the last), starts server and dashboard, and drives
the system's Chromium with an empty cache. A rerun is timed by the page's own clock, from the pointer's release over a choice until the script has ended
("idle") and until the page's last change has been drawn. Wall times depend on the machine's load, which is printed beside them; bytes, CPU and memory
hardly do.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb
import httpx
import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from overrun.analysis.words.times import rfc3339
from overrun.collector.store.database import open_store
from overrun.dashboard import launch
from tests.analysis.builders import T0, insert, requests
from tests.benchmarks.results import Figure, add_write_flag, record
from tests.benchmarks.results import measured as as_figure
from tests.conftest import ServerProcess

PAGES = ("verdict", "budget", "findings", "engine", "traces", "compare", "whatif", "health")
MORE = {"whatif": {"fix": "clip", "p_stage": "prefill", "p_limit_ms": "300"}}
LARGE_SPANS = 10_000
IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'
HOURS = 6
CACHED_ROUNDS = 7
SETTLED_MS = 700
# In the page: when the pointer went up over a choice, when the script had ended, and when what then changed in the page had been drawn.
WATCH = """
    window.watched = {};
    addEventListener('pointerup', event => { if (event.target.closest('[role=option]')) watched = {began: event.timeStamp}; }, true);
    new MutationObserver(changes => {
        if (watched.began === undefined) return;
        const idle = document.querySelector('[data-testid="stApp"]')?.dataset.testScriptState === 'notRunning';
        if (idle && changes.some(change => change.attributeName === 'data-test-script-state')) watched.idle = performance.now();
        if (changes.some(change => change.attributeName !== 'href' && change.target.closest?.('[data-testid="stMain"]'))) {
            const own = watched;
            requestAnimationFrame(() => setTimeout(() => { own.drawn = performance.now(); }));
        }
    }).observe(document, {subtree: true, childList: true, attributes: true});
"""


def main() -> None:
    """Print one row per page."""
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--sessions", type=int, default=10)
    options.add_argument(
        "--db",
        type=Path,
        help="a store of that many requests that an earlier run has kept; one that is not there is made",
    )
    options.add_argument("--pages", nargs="+", choices=PAGES, default=PAGES)
    add_write_flag(options)
    chosen = options.parse_args()
    rows = {}
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        if chosen.db is None or not chosen.db.exists():
            fill(chosen.db or Path(folder) / "overrun.db", chosen.requests)
        if chosen.db is not None:
            shutil.copy(chosen.db, Path(folder) / "overrun.db")
        with duckdb.connect(str(Path(folder) / "overrun.db"), read_only=True) as store:
            held = store.sql("SELECT count(*) FROM requests").fetchall()[0][0]
        server = ServerProcess(Path(folder) / "overrun.db")
        port = launch.pick_port(0)
        shown = launch.run(server.http, port)
        try:
            base = launch.wait_ready(shown, port)
            time.sleep(5)  # the pages are imported while nobody waits
            large = send_large_trace(server.http)
            print(
                f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {held:,} requests; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
            )
            print(
                "| page | first paint | sentence | main content | all there | rerun, new: idle, drawn | rerun, cached | HTTP kB | socket kB | "
                "CPU, first / new / cached |"
            )
            print("|---" * 10 + "|")
            with sync_playwright() as playwright:
                chromium = shutil.which("chromium") or shutil.which("chromium-browser")
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
                )
                for name in chosen.pages:
                    rows[name] = measured(browser, base, name, shown.pid)
                    print(rows[name], flush=True)
                print(
                    opened_large(browser, f"{base}/traces?{urlencode(large)}", shown.pid),
                    flush=True,
                )
                before = rss_mb(shown.pid)
                for number in range(chosen.sessions):
                    page = browser.new_context().new_page()
                    page.goto(
                        address(
                            base,
                            chosen.pages[number % len(chosen.pages)],
                            HOURS - 1 - number % 3,
                            HOURS,
                        )
                    )
                    page.wait_for_selector(".ov-box", timeout=120_000)
                print(
                    f"dashboard's memory: {before:.0f} MB, with {chosen.sessions} more open sessions {rss_mb(shown.pid):.0f} MB; "
                    f"server {rss_mb(server.process.pid):.0f} MB; load {os.getloadavg()[0]:.1f}"
                )
                browser.close()
            if chosen.write:
                record("dashboard", figures(rows, held))
        finally:
            shown.terminate()
            shown.wait(30)
            server.stop()


def figures(rows: dict[str, str], held: int) -> list[Figure]:
    """The rows of the table as figures for docs/results; headlines only of all pages over a million requests."""
    told: dict[str, Any] = {"script": f'make bench-dashboard ARGS="--requests {held}"'}
    found: list[Figure] = []
    new: list[int] = []
    idle: list[int] = []
    said: dict[str, float] = {}
    for name, row in rows.items():
        cells = [
            [float(number) for number in re.findall(r"[\d.]+", cell)]
            for cell in row.split("|")[2:8]
        ]
        (paint,), (said[name],), (content,), (whole,), fresh, cached = cells
        new.append(int(fresh[1]))
        idle.append(int(cached[0]))
        of, first = (
            f"{name}, {held:,} requests",
            {"first paint": paint, "main content": content, "all there": whole},
        )
        again = {"idle": int(cached[0]), "least": int(cached[2])}
        found += [
            as_figure(f"{of}: sentence", said[name], "s", more=first, page=False, **told),
            as_figure(
                f"{of}: new filter, drawn",
                int(fresh[1]),
                "ms",
                more={"idle": int(fresh[0])},
                page=False,
                **told,
            ),
            as_figure(
                f"{of}: filter seen before, drawn",
                int(cached[1]),
                "ms",
                more=again,
                page=False,
                **told,
            ),
        ]
    if set(rows) == set(PAGES) and held >= 1_000_000:
        told["conditions"] = f"{held:,} requests"
        found += [
            as_figure("Verdict's sentence on a first visit", said["verdict"], "s", **told),
            as_figure("New filter, until it is drawn, by page", (min(new), max(new)), "ms", **told),
            as_figure(
                "Filter seen before, until the script ends, by page",
                (min(idle), max(idle)),
                "ms",
                **told,
            ),
        ]
    return found


def fill(database: Path, count: int) -> None:
    """Six hours of requests through four stages; prefill is slow in the last hour."""
    open_store(database, create=True).close()
    rng = np.random.default_rng(1)
    con = duckdb.connect(str(database))
    for first in range(0, count, 100_000):
        n = min(100_000, count - first)
        start_s = np.sort(rng.uniform(0, HOURS * 3600, n))
        prefill = rng.lognormal(5.5, 0.7, n) * np.where(start_s > (HOURS - 1) * 3600, 4.0, 1.0)
        rows = requests(
            n,
            start_s=start_s,
            retrieval_ms=80.0,
            ttft_retrieval_ms=80.0,
            queue_ms=30.0,
            ttft_queue_ms=30.0,
            prefill_ms=prefill,
            ttft_prefill_ms=prefill,
            decode_ms=rng.lognormal(7.3, 0.6, n),
            route=rng.choice(["/ask", "/chat", "/agent"], n).tolist(),
        )
        insert(con, rows.with_columns(trace_lo=rows["trace_lo"] + first))
    con.close()


def address(base: str, page: str, first_hour: float, last_hour: float) -> str:
    """A page over some hours of the store."""
    window = {
        "from": rfc3339(T0 + timedelta(hours=first_hour)),
        "to": rfc3339(T0 + timedelta(hours=last_hour)),
    }
    return f"{base}/{'' if page == 'verdict' else page}?{urlencode(window | MORE.get(page, {}))}"


def send_large_trace(base: str) -> dict[str, str]:
    """Send one request of 10,000 spans, a day behind the others; returns what opens it."""
    start, trace_id = T0 + timedelta(days=1), bytes.fromhex("5" * 32)
    begin = int(start.timestamp()) * 10**9
    body = ExportTraceServiceRequest()
    scope = body.resource_spans.add().scope_spans.add()
    for number in range(LARGE_SPANS):
        first, last = (
            (0, 60 * 10**9) if number == 0 else (number * 5 * 10**6, number * 5 * 10**6 + 4 * 10**6)
        )
        scope.spans.add(
            trace_id=trace_id,
            span_id=(number + 1).to_bytes(8, "big"),
            parent_span_id=b"" if number == 0 else (1).to_bytes(8, "big"),
            name="POST /agent" if number == 0 else f"chat step {number}",
            kind=2 if number == 0 else 3,
            start_time_unix_nano=begin + first,
            end_time_unix_nano=begin + last,
            attributes=[
                KeyValue(
                    key="gen_ai.operation.name",
                    value=AnyValue(string_value="chat" if number % 10 == 1 else "execute_tool"),
                )
            ]
            if number
            else [],
        )
    headers = {"content-type": "application/x-protobuf"}
    httpx.post(
        f"{base}/v1/traces",
        content=body.SerializeToString(),
        headers=headers,
        trust_env=False,
        timeout=60,
    ).raise_for_status()
    while httpx.get(f"{base}/readyz", trust_env=False, timeout=10).json()["pending_traces"]:
        time.sleep(0.2)
    return {
        "from": rfc3339(start - timedelta(minutes=1)),
        "to": rfc3339(start + timedelta(minutes=2)),
        "trace": trace_id.hex(),
    }


def opened_large(browser: Any, url: str, pid: int) -> str:
    """Open it in a browser that has been here before, as one that came from the request list has."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(url.partition("?")[0])
    page.wait_for_selector(IDLE, timeout=120_000)
    cpu, began = cpu_s(pid), time.perf_counter()
    page.goto(url)
    page.wait_for_selector(".ov-row:has-text('more')", timeout=120_000)
    took = time.perf_counter() - began
    rows = page.locator(".ov-row").count()
    tall = page.evaluate(
        "(e => e.scrollHeight > e.clientHeight)(document.querySelector('.ov-rows'))"
    )
    context.close()
    return (
        f"a trace of {LARGE_SPANS:,} spans, with its page: {took:.2f} s, dashboard's CPU {1e3 * (cpu_s(pid) - cpu):.0f} ms, {rows} rows, "
        f"{'scrollable' if tall else 'not scrollable'}"
    )


def measured(browser: Any, base: str, name: str, pid: int) -> str:
    """Open a page cold, then choose a route (answers are new), then all and the route again, several times (answers are cached; medians)."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH)
    moved = {"http": 0, "socket": 0}
    page.on(
        "websocket",
        lambda socket: socket.on(
            "framereceived", lambda frame: moved.__setitem__("socket", moved["socket"] + len(frame))
        ),
    )
    cpu, began = cpu_s(pid), time.perf_counter()
    page.goto(address(base, name, HOURS - 1, HOURS))
    page.wait_for_selector(
        ".ov-box, .ov-lead", timeout=120_000
    )  # the page's own or, before the program runs, the one that came with its address
    said = time.perf_counter() - began
    page.wait_for_selector(".ov-box", timeout=120_000)
    content = time.perf_counter() - began
    page.wait_for_selector(IDLE, timeout=120_000)
    whole, first_cpu = time.perf_counter() - began, cpu_s(pid) - cpu
    paint = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    )
    http_kb = (
        page.evaluate(
            "performance.getEntriesByType('resource').reduce((sum, entry) => sum + entry.transferSize, 0)"
        )
        / 1e3
    )
    socket_kb = moved["socket"] / 1e3
    new = choose(page, "/ask", pid)
    cached = []
    for _ in range(CACHED_ROUNDS):
        clear(page)
        cached.append(choose(page, "/ask", pid))
    again = [statistics.median(column) for column in zip(*cached, strict=True)]
    context.close()
    return (
        f"| {name} | {paint / 1e3:.2f} s | {said:.2f} s | {content:.2f} s | {whole:.2f} s | "
        f"{new[0]:.0f}, {new[1]:.0f} ms | {again[0]:.0f}, {again[1]:.0f} ms (least {min(one[1] for one in cached):.0f}) | "
        f"{http_kb:,.0f} | {socket_kb:,.0f} | {1e3 * first_cpu:.0f} / {new[2]:.0f} / {again[2]:.0f} ms |"
    )


def choose(page: Any, route: str, pid: int) -> tuple[float, float, float]:
    """Choose a route; returns milliseconds until the script has ended and until the page has been drawn, and the dashboard's CPU milliseconds."""
    page.get_by_role("combobox", name="Route").click()
    option = page.get_by_role("option", name=route, exact=True)
    option.wait_for(timeout=30_000)
    cpu = cpu_s(pid)
    option.click()
    page.wait_for_timeout(SETTLED_MS)
    page.wait_for_selector(IDLE, timeout=120_000)
    page.wait_for_timeout(SETTLED_MS)
    watched = page.evaluate("watched")
    # A script that has ended before the page learned that it runs leaves no mark of its own.
    return (
        watched.get("idle", watched["drawn"]) - watched["began"],
        watched["drawn"] - watched["began"],
        1e3 * (cpu_s(pid) - cpu),
    )


def clear(page: Any) -> None:
    """All routes again."""
    page.get_by_label("Route").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("Backspace")
    page.wait_for_timeout(300)
    page.wait_for_selector(IDLE, timeout=120_000)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
