"""Do the receivers' own packages accept our bodies? Slack's and Opsgenie's models, PagerDuty's client, the SDK of CloudEvents."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured
from cloudevents.core.formats.json import JSONFormat
from pagerduty import EventsApiV2Client
from slack_sdk.models.blocks import Block, HeaderBlock, SectionBlock

from overrun.analysis.front.alerts import messages
from overrun.analysis.front.alerts.messages import Message
from tests.analysis.front.alerts.test_messages import FIRED, RAISED, RESOLVED

LONG = msgspec.structs.replace(
    FIRED,
    summary="<&>" * 3_000,
    details={f"field {number}": "<" * 400 for number in range(15)},
    link="https://o.example/" + "a" * 500,
)
BARE = msgspec.structs.replace(FIRED, details={}, link="", trace_link="", trace_id="")
ALL = [FIRED, RAISED, RESOLVED, LONG, BARE]
NAMES = ["fired", "raised", "resolved", "long", "bare"]
each_message = pytest.mark.parametrize("message", ALL, ids=NAMES)


@each_message
def test_slack_accepts_the_blocks(message: Message) -> None:
    body = messages.slack(message)
    blocks = [Block.parse(block) for block in body["blocks"]]
    assert [type(block) for block in blocks[:2]] == [HeaderBlock, SectionBlock]
    # `to_dict` raises SlackObjectFormationError where a limit of Block Kit is broken; what it does not know it would leave out.
    assert [block.to_dict() for block in blocks if block is not None] == body["blocks"]
    fields = [field for block in body["blocks"] for field in block.get("fields", ())]
    assert all(1 <= len(field["text"]) <= 2_000 for field in fields)  # by the docstring of `fields`


def test_no_escape_of_slack_is_cut_in_two() -> None:
    text = messages.slack(LONG)["blocks"][1]["text"]["text"]
    assert len(text) <= 3_000
    assert (
        text == "&lt;&amp;&gt;" * (len(text) // 13) + ("", "&lt;", "&lt;&amp;")[len(text) % 13 // 4]
    )


@each_message
def test_pagerduty_would_send_the_same_body(
    message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []

    class Taken:
        status_code, ok, text = 202, True, ""

        @staticmethod
        def json() -> dict[str, str]:
            return {"dedup_key": message.incident}

    def post(self: EventsApiV2Client, path: str, json: dict[str, Any]) -> Taken:
        assert path == "/v2/enqueue"
        sent.append(json)
        return Taken()

    monkeypatch.setattr(EventsApiV2Client, "post", post)
    monkeypatch.setattr("pagerduty.events_api_v2_client.successful_response", lambda r, **_: r)
    monkeypatch.setattr("pagerduty.events_api_v2_client.try_decoding", lambda r: r.json())
    client = EventsApiV2Client("k" * 32)
    body = messages.pagerduty(message, "k" * 32)
    assert client.auth_method.auth_param == {"routing_key": body.pop("routing_key")}
    ours = dict(body)
    action, key = ours.pop("event_action"), ours.pop("dedup_key")
    client.send_event(action, key, **ours)
    assert sent == [body]
    payload = dict(body["payload"])
    required = {name: payload.pop(name) for name in ("summary", "source", "severity")}
    client.trigger(**required, dedup_key=key, payload=payload, links=body["links"])
    assert {name: sent[1].get(name, []) for name in ("payload", "links")} == {
        name: body[name] for name in ("payload", "links")
    }


@each_message
def test_opsgenie_accepts_the_request(message: Message) -> None:
    import opsgenie_sdk

    asked = messages.opsgenie(message, "key")
    model = (
        opsgenie_sdk.CloseAlertPayload
        if message.event == "resolved"
        else opsgenie_sdk.CreateAlertPayload
    )
    # Unknown names are a TypeError, values that are not allowed a ValueError.
    made = model(**asked.body).to_dict()
    assert {name: value for name, value in made.items() if value is not None} == asked.body


@each_message
def test_the_cloudevents_sdk_reads_the_event(message: Message) -> None:
    body = json.dumps(messages.cloud_event(message)).encode()
    headers = {"content-type": "application/cloudevents+json"}
    event = from_structured(HTTPMessage(headers=headers, body=body), JSONFormat())
    assert event.get_id() == message.id
    assert event.get_type() == f"dev.overrun.incident.{message.event}"
    assert event.get_data() == msgspec.to_builtins(message)
