"""GenAI-Perf's profile_export.json: moments in ns, one per response, each of which holds the text of events: in SQL 3,000 requests of 200 took more than 1 GB.

Source: triton-inference-server/perf_analyzer, genai-perf's parser, read in 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    say_bounded,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import (
    Document,
    count,
    dict_of,
    first,
    number,
    text_of,
)


def genai_perf(documents: Iterable[Document]) -> LoadTest:
    """GenAI-Perf's (perf_analyzer): moments in ns, one per response; the first and the last response with content begin and end the answer."""
    out = LoadTest("genai-perf")
    experiments = [
        e for document in documents for e in document["experiments"] if isinstance(e, dict)
    ]
    unmeasured = 0
    for experiment in experiments:
        about = dict_of(experiment, "experiment")
        load = f"{text_of(about.get('mode')) or 'load'} {about.get('value', '')}".strip()
        begin, level = len(out.requests), number(about.get("value"))
        for request in (r for r in experiment.get("requests") or () if isinstance(r, dict)):
            start_ns = count(request.get("timestamp"))
            moments = [count(at) for at in request.get("response_timestamps") or ()]
            said = [_said(response) for response in request.get("response_outputs") or ()]
            if start_ns is None or any(at is None for at in moments):
                unmeasured += 1
                continue
            times = [at for at in moments if at is not None]
            spoken = (
                [at for at, (text, _) in zip(times, said, strict=False) if text] if said else times
            )
            failed = request.get("success") is False or not spoken
            tokens = first([counted for _, counted in reversed(said)])
            end_ns = spoken[-1] if spoken else times[-1] if times else start_ns
            out.requests.append(
                Request(
                    start_ns,
                    max(0, end_ns - start_ns),
                    max(0, spoken[0] - start_ns) if len(spoken) > 1 else None,
                    None,
                    tokens,
                    None,
                    "no answer" if failed else None,
                    route=load if len(experiments) > 1 else None,
                )
            )
        closed = about.get("mode") == "concurrency"
        out.runs.append(
            Run(
                load,
                out.requests[begin:],
                rate_rps=level if about.get("mode") == "request_rate" else None,
                in_flight=count(level) if closed else None,
            )
        )
        if closed:
            say_bounded(out, about.get("value"), "--concurrency")
    if out.requests and all(request.output_tokens is None for request in out.requests):
        out.notes.append(
            "the file does not count the tokens of its answers: no time per output token"
        )
    say_unmeasured(out, unmeasured)
    return out


def _said(response: Any) -> tuple[str, int | None]:
    """What one response of an OpenAI or Triton endpoint says, and the output tokens that it counts."""
    if not isinstance(response, dict):
        return str(response or ""), None
    if "response" not in response:
        return str(response.get("text_output") or "").strip(), None
    text, tokens = "", None
    for line in str(response["response"]).splitlines():
        try:
            event = json.loads(line.removeprefix("data:").strip())
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        tokens = first([count(dict_of(event, "usage").get("completion_tokens")), tokens])
        for choice in event.get("choices") or ():
            if isinstance(choice, dict):
                part = dict_of(choice, "delta") or dict_of(choice, "message")
                text += str(
                    choice.get("text") or part.get("content") or part.get("reasoning_content") or ""
                )
    return text, tokens
