"""The turns of a session are its requests, and a run that somebody waits for as a whole is one."""

from __future__ import annotations

import pytest

from overrun.analysis.numbers.requests.request_trace import load_trace
from tests.analysis.assembly.assembling import assembled, stages_ms
from tests.analysis.numbers.requests.test_request_trace import stored
from tests.collector.oracle_build import MS, SERVER, Made, body, chat
from tests.collector.oracle_store import Row

VOICE = {"scope": "livekit-agents"}


def voice_turn(at: float, first: int, parent: int, latency_s: float | None) -> list[Made]:
    """A person speaks for 1 s, the text is there 400 ms later, and the agent is heard after 900 ms more."""
    said = {} if latency_s is None else {"lk.e2e_latency": latency_s}
    return [
        Made(first, "user_turn", at, at + 1_400, parent, **VOICE),
        Made(first + 1, "user_speaking", at, at + 1_000, first, **VOICE),
        Made(first + 2, "eou_wait", at + 1_000, at + 1_400, first, **VOICE),
        Made(first + 3, "agent_turn", at + 1_400, at + 4_000, parent, attributes=said, **VOICE),
        chat(first + 4, at + 1_400, at + 2_200, first + 3, ttft=500, **VOICE),
        Made(first + 5, "agent_speaking", at + 2_300, at + 4_000, first + 3, **VOICE),
    ]


def voice_session(latency_s: float | None = 1.3) -> list[Made]:
    return [
        Made(1, "agent_session", 0, 60_000, attributes={"lk.job_id": "job"}, **VOICE),
        *voice_turn(10_000, 10, 1, latency_s),
        *voice_turn(30_000, 20, 1, latency_s),
    ]


def test_a_voice_turn_begins_where_the_person_stops_and_says_its_own_latency() -> None:
    requests, calls = assembled(*voice_session())
    assert [(row["start_ns"] - requests[0]["start_ns"]) / MS for row in requests] == [0, 20_000]
    for row in requests:
        assert (row["ttft_ns"] / MS, row["e2e_ns"] / MS) == (1_300, 3_000)
        assert stages_ms(row, "ttft_") == {
            "network": 400,
            "first_token": 500,
            "decode": 300,
            "other": 100,
        }
        assert (row["session"], row["complete"], row["llm_calls"]) == ("job", True, 1)
    assert [row["turn_span_id"] for row in calls] == [row["root_span_id"] for row in requests]


def test_without_its_senders_latency_a_turn_is_answered_by_its_first_token() -> None:
    requests, _ = assembled(*voice_session(None))
    assert [row["ttft_ns"] / MS for row in requests] == [900, 900]


def test_turns_whose_session_has_not_ended_are_requests_already() -> None:
    _, *turns = voice_session()
    requests, _ = assembled(*turns)
    assert len(requests) == 2


def test_a_turn_that_begins_with_speech_counts_from_its_end() -> None:
    """Pipecat: 5 s of speech, which nobody waits for, then text, model and sound."""
    of = {"scope": "pipecat"}
    requests, _ = assembled(
        Made(1, "conversation", 0, 20_000, attributes={"conversation.id": "c"}, **of),
        Made(2, "turn", 0, 9_000, 1, attributes={"turn.user_bot_latency_seconds": 1.5}, **of),
        Made(3, "stt", 5_300, 5_310, 2, **of),
        chat(4, 5_310, 6_200, 2, ttft=700, **of),
        Made(5, "tts", 6_500, 6_700, 2, **of),
    )
    [row] = requests
    assert (row["ttft_ns"] / MS, row["e2e_ns"] / MS, row["session"]) == (1_500, 4_000, "c")


def messages(top: str, kind: int = SERVER, gap: float = 20_000, name: str = "handle") -> list[Row]:
    """Three spans of 1 s with a call each, under a root of that name."""
    spans = [Made(1, top, 0, 3 * (gap + 1_000), kind=kind)]
    for i in range(3):
        at = i * (gap + 1_000)
        spans += [Made(2 + i, name, at, at + 1_000, 1), chat(10 + i, at + 100, at + 900, 2 + i)]
    return assembled(*spans)[0]


@pytest.mark.parametrize(
    ("made", "requests"),
    [
        (messages("websocket_session"), 3),
        (messages("Dispatcher::run", kind=1), 3),
        (messages("ChatSession.run", kind=1), 3),
        (messages("POST /chat"), 1),  # steps of one answer between which nothing is seen
        (messages("research_agent", kind=1), 1),
        (messages("websocket_session", gap=100), 1),  # it works nearly all the time
        (messages("agent_session", kind=1, name="execute_tool"), 1),
    ],
    ids=["connection", "worker", "words", "request", "run", "busy", "tools"],
)
def test_only_what_waits_between_its_parts_is_a_session(made: list[Row], requests: int) -> None:
    assert len(made) == requests


def test_messages_of_a_websocket_are_requests() -> None:
    """ASGI: the connection's span has the name of a route, and a span for each message that is received."""
    spans = [Made(1, "/chat", 0, 80_000, kind=SERVER)]
    for i in range(3):
        at = 1_000 + i * 25_000
        spans += [
            Made(2 + i, "/chat websocket receive", at - 900, at, 1),
            Made(6 + i, "answer", at, at + 2_000, 1),
            chat(10 + i, at, at + 1_900, 6 + i),
        ]
    requests, _ = assembled(*spans)
    assert [row["e2e_ns"] / MS for row in requests] == [2_000] * 3
    assert len({row["session"] for row in requests}) == 1


def test_a_session_is_shown_by_its_slowest_turn_and_by_a_spans_id() -> None:
    spans = [Made(1, "chat session", 0, 90_000)]
    for i, ms in enumerate((1_000, 4_000, 2_000)):
        at = 1_000 + i * 30_000
        spans += [Made(2 + i, "answer", at, at + ms, 1), chat(10 + i, at, at + ms, 2 + i)]
    with stored(body(*spans)) as con:
        assert load_trace(con, f"{1:032x}").e2e_ms == 4_000
        assert load_trace(con, f"{4:016x}").e2e_ms == 2_000
