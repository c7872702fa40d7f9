"""What a real Prometheus stored of engines gives the verdict that their pages give, and nothing is installed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from overrun import cli
from overrun.analysis.front.report import from_json
from overrun.analysis.words.slo import Slo
from overrun.collector.errors import ConfigError, ImportFailed
from overrun.collector.sources.remote.fetching import Fetcher
from overrun.collector.sources.remote.prometheus import Prometheus, _exponential
from tests.analysis.diagnosis.engine_pages import EVERY_S, T0, imported, page, report, write
from tests.collector.sources.remote.real_prometheus import holding
from tests.collector.sources.remote.servers import Answer, Asked, answer, serving

STEPS = 40
UP = "# TYPE up gauge\nup 1\n"
OTHER = "# TYPE shop_orders counter\nshop_orders_total 5\n"


def healthy(step: int) -> str:
    return page(step)


def sick(step: int) -> str:
    return page(step, slow_from=20, waiting=12.0)


def test_a_stored_incident_has_the_verdict_of_its_pages(tmp_path: Path) -> None:
    moments = [(step, float(T0 + EVERY_S * step)) for step in range(1, STEPS + 1)]
    pages = [
        (time_s, instance, text(step) + UP)
        for step, time_s in moments
        for instance, text in (("gpu-0", healthy), ("gpu-1", sick))
    ]
    pages += [(time_s, "shop-0", OTHER) for _, time_s in moments]
    for instance, text in (("gpu-0", healthy), ("gpu-1", sick)):
        write(tmp_path / "pages" / instance, text, STEPS)
    expected = report(imported(tmp_path / "pages"), Slo(ttft_ms=1_000.0)).verdict

    db = tmp_path / "pulled.db"
    asked = [
        *("report", "--slo", "ttft:1000", "--output", "json", "--db", str(db)),
        *("--from", str(T0), "--to", str(T0 + EVERY_S * (STEPS + 1))),
    ]
    first_asked = [
        "store",
        "import",
        "--db",
        str(db),
        "--since",
        "11m",
        "--to",
        str(T0 + EVERY_S * (STEPS + 1)),
    ]
    # The second pull reads the same samples: they count once.
    with holding(tmp_path, pages) as url:
        first = CliRunner().invoke(
            cli.app, [*first_asked, f"prometheus:{url}", "--match", 'job="vllm"']
        )
        assert first.exit_code == 0, first.output
        done = CliRunner().invoke(cli.app, [*asked, f"prometheus:{url}"])
        assert done.exit_code == 0, done.output
    verdict = from_json(done.stdout.encode()).verdict
    assert (verdict.status, verdict.cause, verdict.sentence, verdict.mitigation) == (
        expected.status,
        expected.cause,
        expected.sentence,
        expected.mitigation,
    )
    assert verdict.cause == "straggler_replica"
    assert not db.with_name("pulled.db.pull.json").exists()


def series(name: str, values: list[list[Any]], **labels: str) -> dict[str, Any]:
    return {
        "metric": {"__name__": name, "job": "vllm", "instance": "a:1", **labels},
        "values": values,
    }


def as_prometheus(asked: Asked) -> Answer:
    """An engine's gauge and counter; a question over more than 150 s has too many samples."""
    if asked.path.endswith("/values"):
        return answer(
            {
                "status": "success",
                "data": ["up", "vllm:num_requests_waiting", "vllm:generation_tokens_total"],
            }
        )
    if asked.path.endswith("/metadata"):
        return 404, {}, b"not here"
    width = int(asked.parameters["query"].rsplit("[", 1)[1].removesuffix("s]"))
    if width > 150:
        return 422, {}, b'{"status":"error","error":"query processing would load too many samples"}'
    end = float(asked.parameters["time"])
    times = [t for t in range(1_000_000_000, 1_000_000_600, 15) if end - width <= t <= end]
    return answer(
        {
            "status": "success",
            "data": {
                "resultType": "matrix",
                "result": [
                    series("vllm:num_requests_waiting", [[t, "3"] for t in times]),
                    series("vllm:generation_tokens_total", [[t, str(t % 1000)] for t in times]),
                    series("up", [[t, "1"] for t in times], job="other"),
                    {"metric": "no labels", "values": [[1, "1"]]},
                    series("vllm:num_requests_waiting", [["x", "y"], [], None, 7]),
                ],
            },
        }
    )


def test_too_many_samples_are_asked_for_in_halves(tmp_path: Path) -> None:
    db = tmp_path / "halves.db"
    asked = ["store", "import", "--db", str(db), "--since", "10m", "--to", "1000000600"]
    with serving(as_prometheus) as server:
        done = CliRunner().invoke(cli.app, [*asked, f"prometheus:{server.url}"])
    assert done.exit_code == 0, done.output
    assert "types of metrics are guessed" in done.stdout
    # 39 scrapes after the window's start, of two metrics; the target of another job is none of an engine's.
    assert "78 spans and data points stored" in done.stdout


@pytest.mark.parametrize(
    "match", ["job=vllm", 'job="a"} or vector(1)', 'job="a",', 'job="a" b="c"', "{"]
)
def test_only_label_matchers_become_part_of_a_query(match: str) -> None:
    with Fetcher("http://127.0.0.1:9", {}) as fetch:
        if match in ('job="a",', "{"):
            Prometheus(fetch, match)
        else:
            with pytest.raises(ConfigError, match="label matchers"):
                Prometheus(fetch, match)


def test_a_server_without_engines_is_named() -> None:
    def shop(asked: Asked) -> Answer:
        return answer({"status": "success", "data": ["up", "shop_orders_total"]})

    with serving(shop) as server, Fetcher(server.url, {}) as fetch:
        source = Prometheus(fetch)
        with pytest.raises(ImportFailed, match="no metric of an engine in this window, of 2 names"):
            source.begin(0.0, 60.0)


def test_native_buckets_become_those_of_an_exponential_histogram() -> None:
    """Scale 1: edges grow by the root of two. Buckets (1, 1.414] and (2, 2.828] hold 2 and 3, and 1 is at zero."""
    root = 2**0.5
    told: dict[str, Any] = {
        "count": "6",
        "sum": "9.5",
        "buckets": [
            [3, "-0.001", "0.001", "1"],
            [0, "1", str(root), "2"],
            [0, "2", str(2 * root), "3"],
        ],
    }
    assert _exponential([10.0, told]) == (10.0, 1, 0, [2, 0, 3], 1, 9.5, 6)
    told["buckets"] = [[1, "-2", "-1", "1"]]  # no latency is below zero
    assert _exponential([10.0, told]) is None
    for broken in (None, [], [1.0], [1.0, {}], [1.0, {"count": "x", "sum": "1"}]):
        assert _exponential(broken) is None
