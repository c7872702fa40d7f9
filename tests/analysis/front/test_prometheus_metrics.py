"""The Prometheus text: read back by Prometheus' own parser, fresh in the background, and silent about what is not known."""

import json
import re
import subprocess
import threading
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from overrun.analysis.front.prometheus_metrics import Background, Snapshot, exposition
from overrun.analysis.front.report import build
from overrun.analysis.numbers.outcomes.burn_rate import burn
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import parse_slo
from overrun.collector.receive.health import metric_lines
from tests.analysis.builders import at, insert, requests, store, vllm_gauges, vllm_spans
from tests.collector.conftest import opened
from tests.collector.sources.remote.real_prometheus import PROMTOOL
from tests.conftest import ROOT
from tests.waiting import LIMIT_S, until

SLO = parse_slo("ttft:1000 e2el:5000")


def snapshot(*, spans: bool = True) -> Snapshot:
    con = store()
    if spans:
        insert(con, vllm_spans())
        vllm_gauges(con)
    return Snapshot(build(con, Window(), SLO), burn(con, Window(), SLO, at(150)))


def samples(lines: list[str]) -> dict[tuple[str, str], float]:
    found = {}
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            found[(sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())))] = (
                sample.value
            )
    return found


def test_prometheus_reads_goodput_burn_stages_and_findings() -> None:
    made = snapshot()
    seen = samples(exposition(made))
    assert seen[("overrun_goodput_ratio", "")] == made.report.goodput.ratio
    assert (
        seen[("overrun_latency_seconds", "metric=ttft,quantile=0.95")]
        == (made.report.latency.ttft_ms.p95 or 0.0) / 1000.0
    )
    assert seen[("overrun_verdict", "status=over_budget")] == 1.0
    assert ("overrun_stage_p95_seconds", "stage=queue") in seen
    assert any(
        name == "overrun_finding" and "rule=under_capacity" in labels for name, labels in seen
    )
    assert ("overrun_burn_rate", "window=3600s") in seen


def test_what_is_not_known_is_no_series() -> None:
    seen = samples(exposition(snapshot(spans=False)))
    assert ("overrun_goodput_ratio", "") not in seen
    assert seen[("overrun_requests", "")] == 0.0


def test_names_cannot_break_the_format() -> None:
    con = store()
    insert(
        con,
        requests(
            100,
            prefill_ms=9_000.0,
            ttft_ms=9_000.0,
            route='x"} 1\noverrun_goodput_ratio 1\\',
            service='a"\n',
        ),
    )
    samples(exposition(Snapshot(build(con, Window(), SLO), burn(con, Window(), SLO, at(0)))))


def test_text_never_waits_and_comes_from_the_background() -> None:
    done, made = threading.Event(), snapshot()

    def ask() -> Snapshot:
        done.wait(LIMIT_S)
        return made

    background = Background(ask)
    assert background.text() == []
    done.set()
    assert ("overrun_verdict", "status=over_budget") in samples(until(background.text))


def test_the_published_rules_ask_for_names_that_are_there() -> None:
    rules = (ROOT / "docs" / "prometheus-rules.yml").read_text(encoding="utf-8")
    asked = set(re.findall(r"overrun_\w+", "\n".join(re.findall(r"expr: (.*)", rules))))
    shown = {name for name, _ in samples(exposition(snapshot()))}
    shown |= {line.split()[0] for line in _age_lines() if not line.startswith("#")}
    assert asked <= shown
    if PROMTOOL is not None:
        subprocess.run(
            [PROMTOOL, "check", "rules", str(ROOT / "docs" / "prometheus-rules.yml")],
            check=True,
            capture_output=True,
            timeout=LIMIT_S,
        )


def test_the_grafana_board_asks_for_names_that_are_there(tmp_path: Path) -> None:
    board = json.loads((ROOT / "deploy" / "grafana-board.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    with opened(tmp_path / "t.db") as pipeline:
        lines = [*exposition(snapshot()), *_age_lines(), *metric_lines(pipeline)]
    shown = {name for name, _ in samples(lines)}
    assert set(re.findall(r"overrun_\w+", " ".join(asked))) <= shown
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) >= 10
    # Panels do not overlap on Grafana's grid of 24 columns.
    places = [
        (x, y)
        for panel in board["panels"]
        for grid in [panel["gridPos"]]
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
    if PROMTOOL is not None:
        # Grafana's variable stands for any job; as rules, promtool reads every expression.
        rules = [
            {"record": f"board:{n}", "expr": expr.replace("$job", ".*")}
            for n, expr in enumerate(asked)
        ]
        file = tmp_path / "board.yml"
        file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
        subprocess.run(
            [PROMTOOL, "check", "rules", str(file)],
            check=True,
            capture_output=True,
            timeout=LIMIT_S,
        )


def _age_lines() -> list[str]:
    background = Background(snapshot)
    background.text()
    for thread in threading.enumerate():
        if thread.name == "overrun-metrics":
            thread.join(LIMIT_S)
    return background.text()
