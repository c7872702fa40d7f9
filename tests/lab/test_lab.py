"""The laboratory's own parts, with an engine that is a few lines: schedules, pace, gateway, application, client, score."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.lab import application, client, drawn, gateway, lengths, load, score, summary
from tests.lab.client import Seen
from tests.lab.experiments import EXPERIMENTS, HELD_BACK
from tests.lab.lengths import Promised
from tests.lab.phases import Phase
from tests.lab.score import Predicted, Score
from tests.lab.servers import Server, free_port

PACE = Path(__file__).parent / "engine" / "overrun_lab_pace.py"


@pytest.fixture(scope="module")
def pace() -> ModuleType:
    """The plugin, which is installed in the engine's environment alone."""
    spec = importlib.util.spec_from_file_location("overrun_lab_pace", PACE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_seed_gives_the_same_schedule_again() -> None:
    once, again, other = (load.schedule(load.Load(), seed) for seed in (7, 7, 8))
    assert once == again
    assert once != other
    assert [r.number for r in once] == list(range(len(once)))
    assert sorted(r.at_s for r in once) == [r.at_s for r in once]


def test_a_noisy_tenant_comes_on_top_of_the_others() -> None:
    quiet = load.schedule(load.Load(), 7)
    noisy = load.schedule(load.Load(noisy_factor=2.0), 7)
    extra = [r for r in noisy if r.tenant == "noisy"]
    assert len(noisy) - len(extra) == len(quiet)
    assert len(extra) > len(quiet)


def test_bursts_keep_the_number_of_requests() -> None:
    even, bursts = load.schedule(load.Load(), 7), load.schedule(load.Load(burst_every_s=20.0), 7)
    assert len(even) == len(bursts)
    assert all(r.at_s % 20.0 <= 2.0 for r in bursts)


@pytest.mark.parametrize("law", ["roofline", "tiles", "table", "graphs"])
def test_more_work_takes_longer_by_every_law(pace: ModuleType, law: str) -> None:
    of = pace.LAWS[law]
    assert of(2048, 4000, 8) > of(512, 4000, 8) > of(8, 4000, 8) > 0
    assert of(8, 400_000, 8) > of(8, 4000, 8)
    assert of(64, 4000, 64) > of(8, 4000, 8)


def test_the_pace_reads_a_step_of_the_scheduler(pace: ModuleType) -> None:
    step = SimpleNamespace(
        num_scheduled_tokens={"new": 500, "old": 1},
        scheduled_new_reqs=[SimpleNamespace(req_id="new", num_computed_tokens=64)],
        scheduled_cached_reqs=SimpleNamespace(req_ids=["old"], num_computed_tokens=[900]),
    )
    assert pace.shape(step) == (501, 564 + 901, 2)


def test_a_cold_engine_takes_longer_at_first(pace: ModuleType) -> None:
    settings = {"law": "tiles", "noise": 0.0, "cold_s": 60.0, "cold_factor": 5.0}
    cold, warm = (pace.Pace(settings | more) for more in ({}, {"cold_s": 0.0}))
    assert cold.wanted_ms(64, 512, 1) == pytest.approx(5.0 * warm.wanted_ms(64, 512, 1))


def test_reports_are_a_route_of_their_own_with_longer_answers() -> None:
    made = load.schedule(load.Load(rate=9.0, report_share=0.2), 7)
    of = {
        route: [r.output_tokens for r in made if r.route == route] for route in ("/ask", "/report")
    }
    assert 0.1 < len(of["/report"]) / len(made) < 0.3
    assert np.median(of["/report"]) > 2 * np.median(of["/ask"])


def test_a_change_is_promised_and_measured_for_each_figure() -> None:
    """Both phases as the client saw them, and rows of `overrun routing`: a fifth less was promised of all figures."""
    fault, fixed = _phase("fault", [1000.0] * 40), _phase("fixed", [700.0] * 40)
    before, after = (lengths.figures(phase.seen) for phase in (fault, fixed))
    rows = [
        {"policy": policy, "known": "predicted", "seconds": dict.fromkeys(before, seconds)}
        for policy, seconds in (("round_robin", 2.0), ("lanes", 1.6))
    ]
    found = lengths.promised({"outcomes": rows}, "lanes", "round_robin", before, after)
    assert {one.figure for one in found} == set(before)
    for one in found:
        assert one.promised == pytest.approx(-0.2)
        assert one.measured == pytest.approx(-0.3)


def test_a_gateway_holds_bytes_back_and_loses_none() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"0123456789"

    async def gather() -> list[bytes]:
        return [piece async for piece in gateway.held(pieces(), 35)]

    found = asyncio.run(gather())
    assert [len(piece) for piece in found] == [40, 40, 20]
    assert b"".join(found) == b"0123456789" * 10


def test_every_experiment_has_a_truth_and_a_fix() -> None:
    assert set(HELD_BACK) < set(EXPERIMENTS)
    for one in EXPERIMENTS.values():
        assert one.causes, one.name
        assert one.advice, one.name
        assert one.fault != one.fixed, one.name


def test_a_drawn_experiment_is_always_the_same_and_has_a_truth_and_a_fix() -> None:
    made = [drawn.drawn(number) for number in range(2 * len(drawn.KINDS))]
    assert made == [drawn.drawn(number) for number in range(len(made))]
    assert len({one.causes for one in made}) == len(drawn.KINDS)
    for one in made:
        assert one.causes, one.name
        assert one.advice, one.name
        assert one.fault not in (one.healthy, one.fixed), one.name
        assert drawn.named(one.name) == one
    assert drawn.named("seats") == EXPERIMENTS["seats"]
    assert drawn.named("drawn_") is drawn.named("nothing") is None


async def _chat(request: Request) -> StreamingResponse:
    wanted = (await request.json())["max_tokens"]

    async def events() -> AsyncIterator[str]:
        for _ in range(wanted):
            choice = {"delta": {"content": "w6 "}, "finish_reason": None}
            yield "data: " + json.dumps({"id": "1", "choices": [choice]}) + "\n\n"
        usage = {"prompt_tokens": 9, "completion_tokens": wanted}
        end = {"delta": {}, "finish_reason": "length"}
        yield "data: " + json.dumps({"id": "1", "choices": [end], "usage": usage}) + "\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def test_application_and_client_agree_on_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over in-process transports: one request, its stream as the user sees it, and its spans."""
    engine = Starlette(routes=[Route("/v1/chat/completions", _chat, methods=["POST"])])
    exported: list[str] = []
    settings = application.Settings(
        engines=("http://127.0.0.1:1",),
        retrieval_ms=1.0,
        tool_ms=1.0,
        cap_tokens=5,
        rounds=2,
        vocabulary=20,
    )
    monkeypatch.setattr(BatchSpanProcessor, "on_end", lambda _, span: exported.append(span.name))

    async def ask() -> list[Seen]:
        service = application.Service(settings)
        service.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=engine))
        web = application.application(service)
        transport = httpx.ASGITransport(app=web)
        request = load.Request(0, 0.0, 10, 10, 12, "acme", 0.5)
        async with httpx.AsyncClient(transport=transport) as user:
            begin = asyncio.get_running_loop().time()
            seen = [await client.send(user, "http://app", request, begin, 0.0)]
        await service.client.aclose()
        service.provider.shutdown()
        return seen

    (seen,) = asyncio.run(ask())
    assert seen.error is None
    assert seen.ttft_ms is not None
    assert seen.e2e_ms is not None
    assert seen.ttft_ms <= seen.e2e_ms
    assert {
        "retrieval",
        "build_prompt",
        "chat tiny-llama",
        "execute_tool search_orders",
        "execute_tool format",
        "postprocess",
        "POST /ask",
    } <= set(exported)
    assert exported.count("chat tiny-llama") == 2


def test_a_detached_answer_is_written_to_the_end_after_the_client_left() -> None:
    worked: list[bytes] = []

    async def stream() -> AsyncIterator[bytes]:
        for part in (b"a", b"b", b"c"):
            await asyncio.sleep(0)
            worked.append(part)
            yield part

    async def leave() -> Any:
        service = application.Service(application.Settings())
        span: Any = service.tracer.start_span("POST /ask")
        answer = service._detached(stream(), span)
        await anext(answer)
        await answer.aclose()  # type: ignore[attr-defined]
        await asyncio.gather(*service.detached)
        await service.client.aclose()
        service.provider.shutdown()
        return span

    span = asyncio.run(leave())
    assert worked == [b"a", b"b", b"c"]
    assert (span.attributes["http.response.status_code"], span.is_recording()) == (499, False)


def _phase(name: str, times: list[float]) -> Phase:
    seen = [
        Seen(number=i, sent_unix=0.0, late_ms=0.0, ttft_ms=t / 2, e2e_ms=t)
        for i, t in enumerate(times)
    ]
    return Phase(
        name=name,
        begin_unix=0.0,
        end_unix=9.0,
        refused_bodies=0,
        load_average=(0, 0, 0),
        seen=seen,
    )


def test_the_limit_leaves_room_above_the_healthy_stretch() -> None:
    assert score.limits(_phase("healthy", [1000.0] * 40)) == "ttft:800 e2e:1600"


def test_a_failed_request_has_no_time() -> None:
    phase = _phase("fault", [100.0, 200.0])
    phase.seen.append(Seen(number=3, sent_unix=0.0, late_ms=0.0, e2e_ms=9e9, error="ReadTimeout"))
    assert score.p95(phase, "e2e") == pytest.approx(195.0)


def test_fixes_are_read_in_the_order_of_the_findings() -> None:
    findings: list[dict[str, Any]] = [
        {"fix": {"id": "limit", "whatif": "cap"}},
        {"fix": None},
        {"fix": {"id": "replicas"}},
    ]
    assert score.advised(findings) == ["cap", "replicas"]


def test_a_report_is_quiet_or_says_why_not() -> None:
    findings = [{"rule": "a", "severity": "info"}, {"rule": "b", "severity": "warning"}]
    assert score.alarm({"verdict": {"status": "within_budget"}, "findings": findings[:1]}) == ""
    loud = {"verdict": {"status": "over_budget"}, "findings": findings}
    assert score.alarm(loud) == "over_budget b"


def test_steps_that_the_machine_held_up_are_counted(tmp_path: Path) -> None:
    lines = [
        "10.0 1 1 9 20.0 3.0 20.1",
        "11.0 1 1 9 20.0 40.0 40.0",
        "99.0 1 1 9 20.0 90.0 90.0",
        "12.0 1",
    ]
    (tmp_path / "steps-1.txt").write_text("\n".join(lines))
    phase = msgspec.structs.replace(_phase("fault", []), begin_unix=5.0, end_unix=50.0)
    assert score.late_steps(tmp_path, [phase]) == 0.5
    held_up = msgspec.structs.replace(_score("seats", 1.0, None, []), late_steps=0.5)
    assert (held_up.disturbed, _score("seats", 1.0, None, []).disturbed) == (True, False)


def _score(experiment: str, after: float, predicted: float | None, alarms: list[str]) -> Score:
    what_if = Predicted(
        metric="e2e",
        before=9e3,
        after=after,
        reported=after,
        predicted=predicted,
        interval=(900.0, 1200.0),
    )
    return Score(
        experiment=experiment,
        repetition="1",
        stage="queue",
        cause=None,
        advice=[],
        stage_right=True,
        cause_right=False,
        advice_right=False,
        percentile_error_ms={},
        predicted=[what_if],
        quiet_windows=2,
        alarms=alarms,
    )


def test_figures_keep_the_held_back_apart_and_state_the_spread() -> None:
    scores = [
        _score("seats", 1000.0, 1100.0, []),
        _score("seats", 1250.0, 1000.0, ["over_budget"]),
        _score(HELD_BACK[0], 1000.0, None, []),
    ]
    scores[0].promised = [
        Promised(figure="e2e_p50", promised=-0.30, measured=-0.26),
        Promised(figure="e2e_p95", promised=0.02, measured=0.10),
    ]
    found = {figure.what: figure for figure in summary.figures(scores, "made up")}
    error = found["Real vLLM, developed on: E2E P95 after the fix, median error"]
    assert (error.value, error.more) == (15.0, {"answered": 2, "spread of repetitions": 22})
    inside = found[
        "Real vLLM, developed on: intervals of 90 % that hold the figure reported afterwards"
    ]
    assert (inside.value, inside.of) == (1, 2)
    routing = next(one for what, one in found.items() if "overrun routing" in what)
    assert (routing.value, routing.more) == (6.0, {"most": 8.0, "n": 2})
    alarms = found["Real vLLM, developed on: alarms in healthy windows"]
    assert (alarms.value, alarms.of) == (1, 4)
    assert found["Real vLLM, held back: stage named"].value == 1


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Server]:
    server = Server("sleeper", ["sleep", "60"], free_port(), tmp_path / "log", {})
    yield server
    server.stop()


def test_a_server_ends_with_its_group(sleeper: Server) -> None:
    sleeper.stop()
    assert sleeper.process.poll() is not None


def test_truth_survives_its_file(tmp_path: Path) -> None:
    phase = _phase("fault", [100.0])
    path = tmp_path / "fault"
    path.mkdir()
    (path / "truth.json.txt").write_bytes(msgspec.json.encode(phase))
    assert score.read(tmp_path, "fault") == phase
