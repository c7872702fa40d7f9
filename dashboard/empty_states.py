"""Is there anything to show? Waiting for the first span, an empty window, old data: each said in a sentence with what to do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import streamlit as st

from overrun.analysis.front import question_table as questions
from overrun.analysis.front.client import ClientError
from overrun.analysis.front.report import Report, seeking, unfinished
from overrun.analysis.numbers.quality.doctor import Checkup, said
from overrun.analysis.numbers.requests.request_list import Holdings
from overrun.dashboard import data, nav, state, ui
from overrun.dashboard.live import STALE_AFTER
from overrun.dashboard.theme import say_age, say_count, say_span, say_time

_ASK_AGAIN_S: Final = 3
# An answer that was not whole is looked at after this long, and asked for again at most every PART_S.
_LOOK_AGAIN_S: Final = 1.5
_MOST_SERVICES: Final = 5
INGEST_TOKEN_VARIABLE: Final = "OVERRUN_INGEST_TOKEN"  # noqa: S105 - the name of a variable, not what it holds


def report_or_state(*, of_metrics: bool = False) -> Report | None:
    """Return the report of the current filters, or None after a sentence was drawn about why there is none.

    `of_metrics` says whether the page can show a report that an engine's metrics alone gave, without any request.
    """
    filters = state.filters()
    asked = data.asked(filters)
    held = data.held(filters)
    report = data.report(asked)
    # Metrics do not tell of services, routes or tenants: where there are requests, a filter that none passes is answered as one.
    if by_metrics(report) and (held.newest is None or not filters.said()):
        if of_metrics:
            return report
        ui.put(
            ui.box(
                "This page needs requests, but there are only engine metrics",
                [
                    ui.sentence(report.verdict.sentence),
                    "Instrument the client that calls the model, or switch tracing on in the inference server.",
                ],
            )
        )
        nav.links(
            ("verdict", "The verdict from the engine's metrics"),
            ("engine", "The metrics over time"),
        )
        return None
    if held.newest is None:
        _waiting(held, report, asked)
        return None
    if report.window.requests == 0:
        _empty(report, held, filters, asked)
        return None
    if stale(filters):
        age = state.now() - held.newest
        ui.put(
            f'<p role="status">◔ Newest request is <b>{say_age(age.total_seconds())}</b> old ({say_time(held.newest, date=True)}). '
            "The numbers below are not updated. Check that the application still exports.</p>"
        )
    if seeking(report):
        among = say_count(report.window.requests, "request")
        ui.put(
            f'<p role="status">◔ The search for causes is running among {among}; the numbers are complete, and the page goes on by '
            "itself.</p>"
        )
    if unfinished(report):
        st.fragment(_until_whole, run_every=_LOOK_AGAIN_S, key="seeking")(asked, seeking(report))
    return report


def stale(filters: state.Filters) -> bool:
    """Whether a page that follows the clock shows old data."""
    newest = data.held(filters).newest
    return filters.follows_now and newest is not None and state.now() - newest > STALE_AFTER


def by_metrics(report: Report) -> bool:
    """Whether an engine's metrics alone speak, no request."""
    return report.verdict.scope == "engine_only"


def _until_whole(asked: data.Asked, sought: bool) -> None:
    """Have it asked for quietly, and draw the page again when the causes are there, or the effect of their fixes. A click must not wait for the answer."""
    told = data.known(asked)
    if told is not None and (seeking(told) != sought or not unfinished(told)):
        st.rerun(scope="app")
    data.ahead(lambda: data.report(asked, anew=True))


def footer(report: Report) -> str:
    """Window, n and how the numbers were made, as safe HTML: the last line of every page."""
    window = report.window
    left_out = f", {window.incomplete:,} incomplete left out" if window.incomplete else ""
    baseline = (
        f"; compared with {say_count(report.baseline.requests, 'request')} ({ui.text(report.baseline.choice)})"
        if report.baseline
        else ""
    )
    how = "interpolated in the engine's histograms" if by_metrics(report) else "exact"
    aged = f" · findings {say_age(report.findings_age_s)} old" if report.findings_age_s else ""
    held = f"{say_count(window.requests, 'request')}{left_out}, {say_count(window.llm_calls, 'model call')}, {say_count(window.spans, 'span')}"
    return (
        f"<small>Window {say_span(window.start, window.end)}{ui.local(window.start, window.end)} · {held}{baseline} · percentiles are {how}{aged} · "
        f"source {ui.text(data.url())}/api/v1{_link(report)}</small>"
    )


def _link(report: Report) -> str:
    """A button that copies the page's address with the window as it is now: it shows the same tomorrow (`anchors.SCRIPT`)."""
    start, end = report.window.start, report.window.end
    if start is None or end is None:
        return ""
    edges = f'data-from="{start.isoformat()}" data-to="{end.isoformat()}"'
    return f' · <button type="button" class="ov-copy" {edges}>Copy link</button>'


def snippets(url: str) -> list[tuple[str, str]]:
    """Return (what, lines to copy) that send telemetry to the server at `url`; the token is named by its variable, never printed."""
    host = urlsplit(url).hostname or "127.0.0.1"
    shown = f"[{host}]" if ":" in host else host
    send = f"export OTEL_EXPORTER_OTLP_ENDPOINT={url} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    token = f'# with a token: export OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer ${INGEST_TOKEN_VARIABLE}"'
    return [
        (
            "An application with the OpenTelemetry SDK",
            "\n".join(
                [
                    send,
                    "export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental   # time to first chunk, cached tokens",
                    token,
                ]
            ),
        ),
        (
            "LangChain or LangGraph",
            "\n".join(
                [
                    "pip install openinference-instrumentation-langchain opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
                    send,
                    token,
                    "# in the program, before the first chain runs:",
                    "from openinference.instrumentation.langchain import LangChainInstrumentor",
                    "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter",
                    "from opentelemetry.sdk.trace import TracerProvider",
                    "from opentelemetry.sdk.trace.export import BatchSpanProcessor",
                    "provider = TracerProvider()",
                    "provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))",
                    "LangChainInstrumentor().instrument(tracer_provider=provider)",
                ]
            ),
        ),
        (
            "LiteLLM",
            "\n".join(
                [
                    f"export OTEL_EXPORTER=otlp_http OTEL_ENDPOINT={url}/v1/traces",
                    f'# with a token: export OTEL_HEADERS="authorization=Bearer ${INGEST_TOKEN_VARIABLE}"',
                    "# proxy, in config.yaml:   litellm_settings: {callbacks: [otel]}",
                    '# SDK, in the program:     litellm.callbacks = ["otel"]',
                ]
            ),
        ),
        (
            "vLLM",
            "\n".join(
                [
                    f"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf vllm serve MODEL --otlp-traces-endpoint {url}/v1/traces",
                    f'# with a token: export OTEL_EXPORTER_OTLP_TRACES_HEADERS="authorization=Bearer ${INGEST_TOKEN_VARIABLE}"',
                ]
            ),
        ),
        (
            "SGLang (gRPC; 4317 unless `overrun serve` printed another port)",
            "\n".join(
                [
                    f"python -m sglang.launch_server --model-path MODEL --enable-trace --otlp-traces-endpoint {shown}:4317",
                    f'# with a token: export OTEL_EXPORTER_OTLP_TRACES_HEADERS="authorization=Bearer ${INGEST_TOKEN_VARIABLE}"',
                ]
            ),
        ),
        ("Recorded example traffic", f"overrun store import FOLDER --url {url}"),
    ]


def _waiting(held: Holdings, report: Report, asked: data.Asked) -> None:
    url = data.url()
    if held.newest_metric is not None and not held.spans:
        _silent_metrics(held.newest_metric, report)
        _poll(asked)
        return
    if held.spans:
        ui.put(
            ui.box(
                "Spans arrive, but none of them is a request yet",
                [
                    "A request needs a span of a model call. Instrument the client that calls the model, or switch tracing on in the inference server:"
                ],
            )
        )
    else:
        ui.put(
            ui.box(
                "Waiting for the first span",
                [
                    f"The server at <code>{ui.text(url)}</code> runs and has no request yet. Send some:"
                ],
            )
        )
    for tab, (_, lines) in zip(
        st.tabs([what for what, _ in snippets(url)]), snippets(url), strict=True
    ):
        tab.code(lines, language=None)
    _poll(asked)


def _silent_metrics(newest: datetime, report: Report) -> None:
    """Inference servers are scraped, but those of this window tell no latency, and nothing sends spans."""
    window, age = report.window, say_age((state.now() - newest).total_seconds())
    ui.put(
        ui.box(
            "The engine's metrics show no latency in this window",
            [
                f"{say_span(window.start, window.end)}: no latency histogram counted a request. This server has metrics of an inference server and "
                f"no spans. The newest sample is from {say_time(newest, date=True)}, {age} ago.",
                "Without spans a verdict needs the engine's histograms of time to first token or of whole requests.",
            ],
        )
    )
    if window.end is None or newest >= window.end or window.start is None or newest < window.start:
        st.button(
            "Show the hour up to the newest sample",
            on_click=state.show_around,
            args=(newest, timedelta(hours=1)),
        )
    nav.links(("health", "What each service sends"))


@st.fragment(run_every=_ASK_AGAIN_S)
def _poll(asked: data.Asked) -> None:
    """Ask quietly, and draw the page again when the first request is there, or an engine's metrics are."""
    try:
        api = data.client()
        found = api.ask(questions.HOLDINGS).newest is not None or by_metrics(
            api.ask(questions.REPORT, dict(asked))
        )
    except ClientError:
        found = True
    if found:
        data.forget()
        st.rerun(scope="app")
    st.caption("This page checks every 3 s and updates by itself.")


def _empty(report: Report, held: Holdings, filters: state.Filters, asked: data.Asked) -> None:
    where = f" with {ui.text(filters.said(), 300)}" if filters.said() else ""
    newest: datetime | None = held.newest
    left_out = (
        f" {report.window.incomplete:,} incomplete requests were left out."
        if report.window.incomplete
        else ""
    )
    lines = [
        f"No complete request started from {say_span(report.window.start, report.window.end)}{where}.{left_out}"
    ]
    if newest is not None:
        age = say_age((state.now() - newest).total_seconds())
        lines.append(
            f"The newest request of this store started at {say_time(newest, date=True)}, {age} ago; the store has {held.requests:,} requests."
        )
    ui.put(ui.box("No request in this window", lines))
    if not (report.window.incomplete or filters.model or filters.route or filters.tenant):
        ui.put(_spans_alone(data.ask(questions.DOCTOR, asked)))
    if newest is not None:
        st.button(
            "Show the hour up to the newest request",
            on_click=state.show_around,
            args=(newest, timedelta(hours=1)),
        )


def _spans_alone(found: Checkup) -> str:
    """What came in a window in which no request began, as safe HTML; empty where nothing did."""
    heads = "".join(
        f"<li>{ui.sentence(said(service)[0])}</li>" for service in found.services[:_MOST_SERVICES]
    )
    return (
        (
            f"<p>Spans arrived in this window, but none of them starts a request: a request needs a model call that generates.</p><ul>{heads}</ul>"
            "<small>Source /api/v1/doctor</small>"
        )
        if heads
        else ""
    )
