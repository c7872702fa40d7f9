"""Metrics pages without a span: the sick replica is named, gauges alone are a verdict, and a filter never answers about something else."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from overrun import cli
from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.evidence import instances
from overrun.analysis.front.report import from_json, to_json
from overrun.analysis.front.report_document import render, to_html, to_markdown
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.times import rfc3339
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS
from overrun.collector.sources import prometheus
from overrun.collector.store.database import open_store
from tests.analysis.diagnosis.engine_pages import T0, imported, page, report, write
from tests.analysis.front.test_report import _nulls

TTFT = Slo(ttft_ms=1_000.0)


# --- several instances ---


@pytest.fixture(scope="module")
def one_sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sick") / "pages"
    write(root / "gpu-0", lambda step: page(step))
    write(root / "gpu-1", lambda step: page(step, slow_from=20, waiting=12.0))
    return imported(root)


def test_the_sick_replica_is_named_as_the_cause(one_sick: Path) -> None:
    made = report(one_sick, TTFT)
    verdict = made.verdict
    assert (verdict.status, verdict.scope, verdict.stage, verdict.cause) == (
        "over_budget",
        "engine_only",
        "queue",
        "straggler_replica",
    )
    assert (
        "gpu-1: TTFT P95 9.75 s, 95 ms on the others (12 wait, KV cache 97 %)" in verdict.sentence
    )
    # Its peer runs 8 at a cache of 40 %: twice the work fits.
    assert (verdict.mitigation or "").startswith("Take gpu-1 out of rotation: its peers have room")
    assert "cause" not in verdict.reasons


def test_the_table_has_a_row_an_instance_the_sick_one_first(one_sick: Path) -> None:
    made = report(one_sick, TTFT)
    assert [(row.instance, row.waiting, row.sick is None) for row in made.instances] == [
        ("gpu-1", 12.0, False),
        ("gpu-0", 0.0, True),
    ]
    assert made.instances[1].output_tokens == pytest.approx(100.0)
    for text in (render(made), to_markdown(made), to_html(made)):
        assert text.index("gpu-1") < text.index("gpu-0")
    assert from_json(to_json(made)) == made
    assert [path for path in _nulls(json.loads(to_json(made))) if not path.startswith("slo.")] == []


def test_equal_replicas_are_none_of_them_sick(tmp_path: Path) -> None:
    for name in ("gpu-0", "gpu-1"):
        write(tmp_path / "pages" / name, lambda step: page(step, slow_from=20, waiting=12.0))
    made = report(imported(tmp_path / "pages"), TTFT)
    assert [row.sick for row in made.instances] == [None, None]
    assert made.verdict.cause == "kv_pressure"  # 97 % full


def _with_token_times(step: int, mean_s: float) -> str:
    """A page whose histogram of times per token has one bucket for all of them."""
    names = "vllm:request_time_per_output_token_seconds"
    lines = [
        f"# TYPE {names} histogram",
        *(
            f'{names}_bucket{{le="{edge}",model_name="m"}} {count * step}'
            for edge, count in (("0.01", 0), ("0.1", 100), ("+Inf", 100))
        ),
        f'{names}_count{{model_name="m"}} {100 * step}',
        f'{names}_sum{{model_name="m"}} {100 * step * mean_s}',
    ]
    return page(step) + "\n".join(lines) + "\n"


def test_a_replica_with_slower_tokens_is_named_within_one_bucket(tmp_path: Path) -> None:
    for name, mean_s in (("gpu-0", 0.020), ("gpu-1", 0.038), ("gpu-2", 0.025)):
        write(tmp_path / "pages" / name, lambda step, m=mean_s: _with_token_times(step, m))  # type: ignore[misc]
    made = report(imported(tmp_path / "pages"), Slo(tpot_ms=50.0))
    sick = {row.instance: row.sick for row in made.instances}
    assert sick["gpu-0"] is sick["gpu-2"] is None
    said = "38 ms for each output token, 20 ms on the others"
    assert (sick["gpu-1"] or "").startswith(said)
    assert f"Of 3 instances gpu-1: {said}" in made.verdict.sentence


def test_replicas_of_different_models_are_no_peers(tmp_path: Path) -> None:
    write(tmp_path / "pages" / "small", lambda step: page(step, name="small"))
    write(
        tmp_path / "pages" / "large",
        lambda step: page(step, slow_from=0, waiting=12.0, name="large"),
    )
    assert [row.sick for row in report(imported(tmp_path / "pages"), TTFT).instances] == [
        None,
        None,
    ]


def test_a_rank_that_makes_no_tokens_is_sick(tmp_path: Path) -> None:
    def ranks(step: int) -> str:
        both = [
            page(step, labels=f'engine="{rank}"', tokens=0 if rank else 1_500, histograms=False)
            for rank in (0, 1)
        ]
        return (
            both[0]
            + "\n".join(line for line in both[1].splitlines() if not line.startswith("#"))
            + "\n"
        )

    write(tmp_path / "pages" / "gpu-0", ranks)
    made = report(imported(tmp_path / "pages"), TTFT)
    assert {row.instance: row.sick for row in made.instances} == {
        "gpu-0/engine 1": "holds 8 requests and writes no tokens",
        "gpu-0/engine 0": None,
    }
    assert "gpu-0/engine 1" in made.verdict.sentence


# --- gauges alone ---


def test_a_standing_queue_is_said_without_a_histogram(tmp_path: Path) -> None:
    write(
        tmp_path / "pages" / "gpu-0",
        lambda step: page(step, slow_from=20, waiting=12.0, histograms=False),
    )
    made = report(imported(tmp_path / "pages"), TTFT)
    verdict = made.verdict
    assert (verdict.status, verdict.scope, verdict.stage, verdict.cause) == (
        "not_enough_data",
        "engine_only",
        "queue",
        "kv_pressure",
    )
    assert "requests wait in 100 % of the samples (12 on average, at most 12)" in verdict.sentence
    assert "TTFT (limit 1.00 s) is not measured" in verdict.sentence
    assert verdict.onset is not None
    assert verdict.onset.timestamp() == T0 + 21 * 15


def test_littles_law_tells_the_wait_where_finished_requests_are_counted(tmp_path: Path) -> None:
    """12 wait and 2 finish a second: 6 s."""
    write(
        tmp_path / "pages" / "gpu-0",
        lambda step: (
            page(step, slow_from=0, waiting=12.0, histograms=False)
            + f'# TYPE vllm:request_success_total counter\nvllm:request_success_total{{finished_reason="stop"}} {30 * step}\n'
        ),
    )
    db = imported(tmp_path / "pages")
    verdict = report(db, TTFT).verdict
    assert (verdict.status, verdict.metric, verdict.stage) == ("over_budget", "ttft", "queue")
    assert "by Little's law a request waits 6.00 s on average" in verdict.sentence
    assert report(db, Slo(ttft_ms=10_000.0)).verdict.status == "not_enough_data"


def test_gauges_of_gpus_alone_are_not_no_data(tmp_path: Path) -> None:
    write(tmp_path / "pages" / "dcgm", lambda step: f'DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} {step}\n')
    verdict = report(imported(tmp_path / "pages"), TTFT).verdict
    assert (verdict.status, verdict.scope) == ("not_enough_data", "engine_only")
    assert "only gpu_util" in verdict.sentence


def test_an_embedding_server_is_judged_by_its_own_times(tmp_path: Path) -> None:
    def tei(step: int) -> str:
        buckets = "".join(
            f'te_request_duration_bucket{{le="{edge}"}} {10 * step if float(edge) >= 5 else 0}\n'
            for edge in ("0.1", "1", "5", "+Inf")
        )
        return f"# TYPE te_queue_size gauge\nte_queue_size 7\n# TYPE te_request_duration histogram\n{buckets}te_request_duration_count {10 * step}\n"

    write(tmp_path / "pages" / "tei", tei)
    made = report(imported(tmp_path / "pages"), Slo(e2e_ms=1_000.0))
    assert (made.verdict.status, made.verdict.metric) == ("over_budget", "e2e")
    assert made.instances[0].waiting == 7.0


# --- names ---


def test_a_page_of_unknown_names_is_said_with_the_remedy(tmp_path: Path) -> None:
    write(
        tmp_path / "pages" / "own",
        lambda step: f"acme_queue_len 3\nacme_tokens_total {step}\npython_info 1\n",
    )
    made = report(imported(tmp_path / "pages"), TTFT)
    said = "80 points of 2 metrics have unknown names: acme_queue_len, acme_tokens_total. Map them under [metrics] in overrun.toml"
    assert said in made.verdict.sentence
    assert {check.check: check.status for check in made.data_quality}["unknown_metrics"] == "warn"
    assert (
        made.unknown_metrics.points,
        made.unknown_metrics.names,
        made.unknown_metrics.instances,
    ) == (80, ["acme_queue_len", "acme_tokens_total"], ["own"])


def test_unknown_names_beside_known_ones_are_said_too(one_sick: Path, tmp_path: Path) -> None:
    write(
        tmp_path / "pages" / "gpu-0",
        lambda step: page(step) + "acme_queue_len 3\nvllm:new_in_this_build 1\n",
    )
    made = report(imported(tmp_path / "pages"), TTFT)
    assert made.unknown_metrics.names == ["acme_queue_len"]
    said = "40 points of 1 metric have unknown names: acme_queue_len. Map them under [metrics] in overrun.toml"
    assert said in " ".join(render(made).split())
    assert report(one_sick, TTFT).unknown_metrics.metrics == 0


# --- filters ---


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ({"model": "n"}, "--model 'n' is not stored: known are m"),
        ({"service": "vlm"}, "nearest known is 'vllm'"),
        ({"route": "/chat"}, "no route is stored"),
        ({"tenant": "acme"}, "no tenant is stored"),
    ],
)
def test_a_filter_that_names_nothing_is_refused(
    one_sick: Path, window: dict[str, str], said: str
) -> None:
    made = report(one_sick, TTFT, **window)
    assert (made.verdict.status, made.instances) == ("no_data", [])
    assert said in made.refused
    ((flag, value),) = window.items()
    told = CliRunner().invoke(
        cli.app, ["report", "--db", str(one_sick), f"--{flag}", value, "--output", "json"]
    )
    assert (told.exit_code, told.stdout) == (2, "")
    assert said in told.stderr


def test_filters_choose_among_instances(tmp_path: Path) -> None:
    write(tmp_path / "pages" / "small", lambda step: page(step, name="small"))
    write(
        tmp_path / "pages" / "large",
        lambda step: page(step, slow_from=0, waiting=12.0, name="large", prefix="lmdeploy:"),
    )
    db = imported(tmp_path / "pages")
    assert [row.instance for row in report(db, TTFT, model="small").instances] == ["small"]
    assert report(db, TTFT, model="small").verdict.status == "within_budget"
    assert report(db, TTFT, service="lmdeploy").verdict.status == "over_budget"
    assert [row.instance for row in report(db, TTFT, service="vllm").instances] == ["small"]
    assert report(db, TTFT, service="vllm", model="large").verdict.status == "no_data"


def test_a_histogram_of_another_engine_does_not_answer_a_filter(tmp_path: Path) -> None:
    write(tmp_path / "pages" / "once", lambda step: page(step, prefix="lmdeploy:"), steps=1)
    write(tmp_path / "pages" / "gauges", lambda step: page(step, histograms=False))
    db = imported(tmp_path / "pages")
    assert "arrived once" in report(db, TTFT, service="lmdeploy").verdict.sentence
    assert "By the engine's gauges alone" in report(db, TTFT, service="vllm").verdict.sentence


# --- targets ---


def up(pipeline_db: Path, states: dict[str, list[tuple[int, str, str]]]) -> Path:
    """A database in which targets were read: instance -> (seconds, state, reason)."""
    store = open_store(pipeline_db, create=True)
    pipeline = Pipeline(store, CollectorSettings(), PrivacySettings(), assemble)
    try:
        for instance, told in states.items():
            for second, state, reason in told:
                body = prometheus.up(
                    service="scrape",
                    instance=instance,
                    time_ns=(T0 + second) * 1_000_000_000,
                    is_up=state == "up",
                    state=state,
                    reason=reason,
                    took_s=4.0 if reason == "late" else 0.1,
                    interval_s=5.0,
                )
                pipeline.writer.submit(METRICS, body).result(30)
    finally:
        pipeline.close()
    return pipeline_db


def test_targets_that_are_all_down_are_the_verdict(tmp_path: Path) -> None:
    refused = [
        (0, "up", ""),
        (60, "down", "connection refused"),
        (120, "down", "connection refused"),
    ]
    made = report(
        up(tmp_path / "a.db", {"gpu-0": refused, "gpu-1": [(0, "down", "timed out")]}), TTFT
    )
    assert made.verdict.status == "targets_down"
    at = rfc3339(datetime.fromtimestamp(T0 + 60, UTC))
    assert made.verdict.sentence.startswith(
        f"All 2 metrics targets return nothing: gpu-0 down since {at} (connection refused); gpu-1 down since"
    )
    assert render(made).startswith("OVERRUN  TARGETS DOWN")
    assert "OTLP traces" not in render(made)
    assert {
        target.instance: (target.state, target.answered, target.attempts) for target in made.targets
    } == {"gpu-0": ("down", 1, 3), "gpu-1": ("down", 0, 1)}
    assert [path for path in _nulls(json.loads(to_json(made))) if not path.startswith("slo.")] == []


def test_one_target_of_two_is_no_verdict_but_a_sick_instance(tmp_path: Path) -> None:
    write(tmp_path / "pages" / "gpu-0", lambda step: page(step))
    db = imported(tmp_path / "pages")
    made = report(
        up(
            db,
            {
                "gpu-0": [(30, "up", ""), (600, "up", "")],
                "gpu-1": [(30, "up", ""), (600, "down", "answered 503")],
            },
        ),
        TTFT,
    )
    assert made.verdict.status == "within_budget"
    assert [(row.instance, row.state) for row in made.instances] == [
        ("gpu-1", "down"),
        ("gpu-0", "up"),
    ]
    assert "gpu-1: down since" in made.verdict.sentence
    assert {check.check: check.status for check in made.data_quality}["targets"] == "fail"


def test_engines_that_stopped_keep_what_was_known_of_them(tmp_path: Path) -> None:
    write(tmp_path / "pages" / "gpu-0", lambda step: page(step, slow_from=20, waiting=9.0))
    made = report(
        up(
            imported(tmp_path / "pages"),
            {"gpu-0": [(30, "up", ""), (610, "down", "connection refused")]},
        ),
        TTFT,
    )
    assert made.verdict.status == "targets_down"
    assert "The only metrics target returns nothing: gpu-0 down since" in made.verdict.sentence
    assert "Before: By the engine's metrics alone (no spans): TTFT P95" in made.verdict.sentence
    assert (made.verdict.cause, made.verdict.rollback) == (None, None)


def test_a_target_that_was_asked_shortly_before_the_window_is_still_down(tmp_path: Path) -> None:
    db = up(tmp_path / "a.db", {"gpu-0": [(0, "down", "timed out")]})
    begin = datetime.fromtimestamp(T0 + 30, UTC)
    assert (
        report(db, TTFT, start=begin, end=begin + timedelta(seconds=5)).verdict.status
        == "targets_down"
    )
    later = begin + timedelta(hours=1)
    assert (
        report(db, TTFT, start=later, end=later + timedelta(seconds=5)).verdict.status == "no_data"
    )


def test_a_page_that_takes_most_of_its_interval_is_slow(tmp_path: Path) -> None:
    made = report(up(tmp_path / "a.db", {"gpu-0": [(0, "up", "late"), (30, "up", "late")]}), TTFT)
    assert [(target.state, target.reason) for target in made.targets] == [
        ("slow", "its page takes 4.0 s of 5 s")
    ]
    assert made.verdict.status == "not_enough_data"


def test_a_page_of_unknown_names_is_a_state_of_its_target(tmp_path: Path) -> None:
    write(tmp_path / "pages" / "own", lambda step: "acme_queue_len 3\n")
    made = report(
        up(imported(tmp_path / "pages"), {"own": [(30, "up", ""), (600, "up", "")]}), TTFT
    )
    assert [target.state for target in made.targets] == ["unknown names"]


# --- check and doctor ---


def told(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, list(arguments))


def test_the_gate_judges_metrics_alone(one_sick: Path, tmp_path: Path) -> None:
    failed = told("check", "--db", str(one_sick), "--slo", "ttft:1000", "--output", "json")
    assert failed.exit_code == 1
    result = json.loads(failed.stdout)
    assert (
        result["passed"],
        result["goodput_ratio"],
        [gate["gate"] for gate in result["gates"]],
    ) == (False, None, ["ttft"])
    assert (
        "Failed by the engines' metrics alone: ttft is 9.03 s, between 5.00 s and 10.0 s, required: P95 at most 1.00 s."
        in result["sentence"]
    )
    write(tmp_path / "pages" / "gpu-0", lambda step: page(step))
    passed = told("check", str(tmp_path / "pages"), "--slo", "ttft:1000")
    assert (passed.exit_code, "Passed by the engines' metrics alone: ttft is" in passed.stdout) == (
        0,
        True,
    )


def test_the_gate_fails_where_all_targets_are_down_and_judges_no_queue_alone(
    tmp_path: Path,
) -> None:
    down = told(
        "check",
        "--db",
        str(up(tmp_path / "a.db", {"gpu-0": [(0, "down", "timed out")]})),
        "--slo",
        "ttft:1000",
    )
    assert down.exit_code == 1
    said = " ".join(down.stdout.split())
    assert "The only metrics target returns nothing: gpu-0 down" in said
    write(tmp_path / "pages" / "gpu-0", lambda step: page(step, histograms=False))
    unknown = told("check", str(tmp_path / "pages"), "--slo", "ttft:1000")
    assert unknown.exit_code == 2
    assert "nothing to judge: By the engine's gauges alone" in " ".join(unknown.stderr.split())


def test_the_gate_refuses_a_filter_that_names_nothing(one_sick: Path) -> None:
    found = told("check", "--db", str(one_sick), "--model", "n")
    assert (found.exit_code, "is not stored" in found.stderr) == (2, True)


def test_doctor_says_what_an_engines_metrics_leave_out(one_sick: Path, tmp_path: Path) -> None:
    write(
        tmp_path / "pages" / "llama",
        lambda step: (
            f"llamacpp:requests_processing 3\nllamacpp:tokens_predicted_total {step}\nacme_x 1\n"
        ),
    )
    db = up(imported(tmp_path / "pages"), {"gone": [(600, "down", "unknown host")]})
    text = told("doctor", "--db", str(db)).stdout
    assert "no spans were received, only metrics" in text
    assert (
        "llama: metrics of llama.cpp\n  reports: output_tokens, running\n  never seen: ttft (hides TTFT)"
        in text
    )
    assert "never seen: queue_depth (hides which requests wait)" in text
    assert "gone down since" in text
    assert "40 points of 1 metric have unknown names: acme_x" in text
    healthy = told("doctor", "--db", str(one_sick)).stdout
    assert (
        "gpu-0: metrics of vllm, m\n  reports: kv_cache_usage, output_tokens, queue_depth, running, ttft"
        in healthy
    )
    assert "never seen" not in healthy


def test_doctor_knows_the_services_of_metrics(one_sick: Path) -> None:
    assert told("doctor", "--db", str(one_sick), "--service", "vllm").exit_code == 0
    wrong = told("doctor", "--db", str(one_sick), "--service", "vlm")
    assert (wrong.exit_code, "nearest known is 'vllm'" in wrong.stderr) == (2, True)


# --- as other servers send it ---


def _without_types(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("#")) + "\n"


def _untyped(text: str) -> str:
    """As `/federate` writes it: every series its own family."""
    names = dict.fromkeys(line.split("{")[0] for line in _without_types(text).splitlines())
    return "".join(
        f"# TYPE {name} untyped\n"
        + "".join(f"{line}\n" for line in text.splitlines() if line.split("{")[0] == name)
        for name in names
    )


RAY = 'Component="core_worker",NodeAddress="10.0.0.3",ReplicaId="abc123",WorkerId="f00d",deployment="LLMServer:qwen",engine="0"'
SENDERS = {
    "vLLM": lambda step: page(step, slow_from=20, waiting=12.0),
    "underscores": lambda step: page(step, slow_from=20, waiting=12.0, prefix="vllm_"),
    "Ray Serve": lambda step: page(
        step, slow_from=20, waiting=12.0, prefix="ray_vllm_", labels=RAY
    ),
    "Ray without total": lambda step: page(
        step, slow_from=20, waiting=12.0, prefix="ray_vllm_", labels=RAY
    ).replace("_tokens_total", "_tokens"),
    "NIM": lambda step: page(step, slow_from=20, waiting=12.0, prefix=""),
    "LMDeploy": lambda step: page(
        step, slow_from=20, waiting=12.0, prefix="lmdeploy:", labels='engine="0"'
    ),
    "FastDeploy": lambda step: page(step, slow_from=20, waiting=12.0, prefix="fastdeploy:"),
    "no types": lambda step: _without_types(page(step, slow_from=20, waiting=12.0)),
    "federated": lambda step: _untyped(
        page(step, slow_from=20, waiting=12.0, labels='instance="gpu-0:8000",job="vllm"')
    ),
    "NIM federated": lambda step: _untyped(
        page(
            step, slow_from=20, waiting=12.0, prefix="", labels='instance="gpu-0:8000",pod="nim-0"'
        )
    ),
}


@pytest.mark.parametrize("sender", SENDERS)
def test_every_sender_of_vllms_names_gives_the_same_verdict(tmp_path: Path, sender: str) -> None:
    write(tmp_path / "pages" / "gpu0", SENDERS[sender])
    made = report(imported(tmp_path / "pages"), TTFT)
    assert (made.verdict.status, made.verdict.stage, made.verdict.cause) == (
        "over_budget",
        "queue",
        "kv_pressure",
    )
    assert made.latency.ttft_ms.p95_interval == (5_000.0, 10_000.0)
    (row,) = made.instances
    assert (row.waiting, row.running, row.output_tokens) == (12.0, 8.0, pytest.approx(100.0))
    assert made.unknown_metrics.metrics == 0


def test_tokens_without_time_make_no_engine_slow() -> None:
    rows: Any = [SimpleNamespace(tpot_mean_ms=ms) for ms in (0.0, 0.0, 30.0, 10.0)]
    nothing, other, slow, usual = rows
    assert instances._slower_tokens(nothing, [other]) is None
    assert instances._slower_tokens(slow, [other]) is None
    assert instances._slower_tokens(slow, [usual]) is not None
