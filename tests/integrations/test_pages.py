"""The pages of docs/integrations: what they give people to paste runs, and what they say was seen is what the real packages sent.

`make check-integrations` runs every line with the real packages and records what they send; here the recordings are read, and our own commands run.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from overrun.analysis.front.file_import import import_files
from overrun.cli import app
from overrun.collector.config import load
from overrun.collector.normalise.metric_names import has_indicator
from overrun.collector.store.database import open_store
from tests.conftest import StartServer
from tests.integrations import pages, recording
from tests.integrations.cases import CASES
from tests.integrations.seen import seen
from tests.waiting import until

NAMES = pages.names()
ENGINES = [name for name in NAMES if "the engine's page" in pages.read(name).text]
INDEX = (pages.FOLDER / "index.md").read_text(encoding="utf-8")
GROUP = typer.main.get_command(app)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_short_and_has_its_parts(name: str) -> None:
    page = pages.read(name)
    assert [page.said(label) is not None for label in ("You see", "Missing", "Run with")] == [
        True
    ] * 3
    assert len(page.commands) <= 6
    assert len(page.text.splitlines()) <= 40
    assert f"({name}.md)" in INDEX
    assert (page.said("Seen") is not None) == (name in CASES)
    if name in CASES:
        assert re.search(r"\d+\.\d+", page.said("Run with") or "")


@pytest.mark.parametrize("name", NAMES)
def test_blocks_can_be_read(name: str) -> None:
    for block in pages.read(name).blocks:
        if block.kind == "python":
            ast.parse(block.text)
        elif block.kind == "sh":
            checked = subprocess.run(["bash", "-n"], input=block.text, text=True, check=False)
            assert checked.returncode == 0
        elif block.kind == "yaml":
            # Two spaces a level, a key or an item a line.
            line = r"#.*|(?:  )*(?:- )?[\w/-]+:(?: \S.*)?"
            assert all(re.fullmatch(line, one) for one in block.text.splitlines())
        else:
            assert block.kind in ("js", "properties")


def _commands() -> list[str]:
    index = pages.Page("index", INDEX)
    every = [line for page in (*map(pages.read, NAMES), index) for line in page.commands]
    return sorted({line.removesuffix("&").strip() for line in every if line.startswith("overrun ")})


@pytest.mark.parametrize("command", _commands())
def test_our_own_commands_can_be_typed(command: str) -> None:
    _, name, *rest = shlex.split(command)
    root = GROUP.make_context("overrun", [], resilient_parsing=True)
    found = GROUP.get_command(root, name)
    assert found is not None
    found.make_context(name, rest, parent=root)


def _metrics(name: str) -> list[str]:
    """What an engine's page says is read of it."""
    names = r"`((?:vllm|sglang|llamacpp):\w+|(?:tgi|trtllm|nv|dynamo|ray_serve|inference|request)_\w+[a-z])`"
    return re.findall(names, pages.read(name).said("You see") or "")


def test_a_name_of_a_metric_is_one_that_is_understood() -> None:
    named = {metric for name in ENGINES for metric in _metrics(name)}
    assert len(named) > 30
    assert {metric for metric in named if not _known(metric)} == set()
    assert not _known("request_preprocess_seconds")


@pytest.fixture
def stand_ins() -> Iterator[dict[str, str]]:
    """A server for each engine's page, with its names on a metrics page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            lines = []
            for metric in _metrics(served[self.server]):
                timed = re.search(r"_(?:seconds|duration|ms)$", metric)
                kind = "histogram" if timed else "counter" if metric.endswith("_total") else "gauge"
                lines.append(f"# TYPE {metric} {kind}")
                parts = ('_bucket{le="+Inf"}', "_sum", "_count") if timed else ("",)
                lines += [f"{metric}{part} 1" for part in parts]
            data = "\n".join([*lines, ""]).encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    served = {ThreadingHTTPServer(("127.0.0.1", 0), Handler): name for name in ENGINES}
    for server in served:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {name: f"127.0.0.1:{server.server_address[1]}" for server, name in served.items()}
    for server in served:
        server.shutdown()
        server.server_close()


def test_every_engines_page_is_scraped_and_asked_for(
    stand_ins: dict[str, str], tmp_path: Path, start_server: StartServer
) -> None:
    """The three lines of each engine's page, with one server for all of them."""
    scraped = [word for at in stand_ins.values() for word in ("--scrape", f"http://{at}/metrics")]
    server = start_server(tmp_path / "e.db", "--grpc-port", "0", "--http-port", "0", *scraped)
    url = ["--url", server.http, "--output", "json"]

    def all_up() -> Any:
        found = json.loads(CliRunner().invoke(app, ["doctor", *url]).stdout)
        up = [one for one in found["targets"] if one["state"] == "up"]
        return len(up) == len(ENGINES) == len(found["metrics"]) and found

    found = until(all_up)
    assert [one["instance"] for one in found["metrics"] if not one["indicators"]] == []
    assert found["unknown_metrics"]["metrics"] == 0
    report = CliRunner().invoke(app, ["report", *url])
    assert report.exit_code in (0, 1), report.output
    rows = json.loads(report.stdout)["instances"]
    # An endpoint picker's pool is no instance.
    assert {one["instance"] for one in rows} == set(stand_ins.values()) - {stand_ins["llm-d"]}


def _known(metric: str) -> bool:
    return any(has_indicator(name) for name in (metric, f"{metric}_total"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all recordings; each has a service of its own."""
    db = tmp_path_factory.mktemp("recorded") / "recorded.db"
    settings = load(flags={"collector.db": str(db)})
    files = sorted(recording.FOLDER.glob("*.pb.zst"))
    import_files(files, settings, url=None, progress=lambda *_: None)
    return db


@pytest.mark.parametrize("name", CASES)
def test_what_was_seen_is_what_the_page_says(recorded: Path, name: str) -> None:
    with closing(open_store(recorded, create=False)) as store:
        assert seen(store.cursor(), name) == pages.read(name).said("Seen")


@pytest.mark.parametrize("name", ["fastapi", "django"])  # with TTFT and without
def test_the_report_judges_the_requests(recorded: Path, name: str) -> None:
    flags = ["--db", str(recorded), "--service", name, "--output", "json"]
    made = CliRunner().invoke(app, ["report", *flags])
    assert made.exit_code in (0, 1), made.output
    goodput = json.loads(made.stdout)["goodput"]
    assert goodput["good"] + goodput["bad"] + goodput["unmeasurable"] == 60


def test_doctor_knows_every_service(recorded: Path) -> None:
    made = CliRunner().invoke(app, ["doctor", "--db", str(recorded), "--output", "json"])
    assert made.exit_code == 0, made.output
    found = json.loads(made.stdout)["services"]
    assert {one["service"] for one in found} == set(CASES)
    assert {one["service"] for one in found if one["unknown_spans"]} == set()
    twice = next(one for one in found if one["service"] == "langchain")
    assert (twice["model_calls"], twice["calls"], twice["seen"]["ttft"]) == (240, 120, 1.0)


def test_no_recording_names_the_machine_that_made_it() -> None:
    import zstandard

    for path in recording.FOLDER.glob("*.zst"):
        body = zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=1 << 26)
        assert not re.search(
            rb"(?<!net\.)host\.name|process\.command|/work/|/tmp/|/root/|/home/", body
        ), path.name
