"""Each receiver's form, held against what its documentation requires, and a real Alertmanager that takes it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import msgspec
import pytest

from overrun.analysis.front.alerts import messages, settings
from overrun.analysis.front.alerts.delivery import send
from overrun.analysis.front.alerts.messages import Message
from overrun.analysis.front.alerts.settings import Receiver
from overrun.collector.errors import ConfigError
from tests.collector.sources.remote.real_prometheus import listening

FIRED = Message(
    id="overrun-requests-1-fired",
    event="fired",
    incident="overrun-requests-1",
    group="requests",
    severity="warning",
    title="Requests miss their limits",
    summary="TTFT P95 is 9 s <b>, limit 1 s",
    began=1_795_600_000.0,
    at=1_795_600_600.0,
    details={
        "verdict": "TTFT P95 is 9 s <b>, limit 1 s",
        "stage": "queue",
        "do now": "Add a replica & wait",
    },
    link="https://o.example/verdict?from=x",
    trace_id="0af7651916cd43dd8448eb211c80319c",
    trace_link="https://o.example/traces?trace=0af7651916cd43dd8448eb211c80319c",
)
RAISED = msgspec.structs.replace(FIRED, event="raised", severity="critical", id="x-raised")
RESOLVED = msgspec.structs.replace(FIRED, event="resolved", details={}, trace_id="", trace_link="")

TEXT = {"type": "string", "minLength": 1}
# What PagerDuty's reference of the Events API v2 requires.
PAGERDUTY = {
    "type": "object",
    "required": ["routing_key", "event_action"],
    "additionalProperties": False,
    "properties": {
        "routing_key": {"type": "string", "minLength": 32, "maxLength": 32},
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": {"type": "string", "maxLength": 255},
        "payload": {
            "type": "object",
            "required": ["summary", "source", "severity"],
            "additionalProperties": False,
            "properties": {
                "summary": {"type": "string", "minLength": 1, "maxLength": 1024},
                "source": TEXT,
                "severity": {"enum": ["critical", "error", "warning", "info"]},
                "timestamp": TEXT,
                "component": TEXT,
                "group": TEXT,
                "class": TEXT,
                "custom_details": {"type": "object"},
            },
        },
        "links": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["href"],
                "properties": {"href": TEXT, "text": TEXT},
            },
        },
        "client": TEXT,
        "client_url": TEXT,
    },
}
# What Slack's Block Kit reference allows of headers and sections.
SLACK = {
    "type": "object",
    "required": ["text", "blocks"],
    "properties": {
        "text": TEXT,
        "blocks": {
            "type": "array",
            "maxItems": 50,
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "type": {"enum": ["header", "section"]},
                    "text": {
                        "type": "object",
                        "required": ["type", "text"],
                        "properties": {
                            "type": {"enum": ["plain_text", "mrkdwn"]},
                            "text": {"type": "string", "minLength": 1, "maxLength": 3000},
                        },
                    },
                    "fields": {"type": "array", "minItems": 1, "maxItems": 10},
                },
            },
        },
    },
}
# Of the CloudEvents 1.0 JSON schema, the required attributes.
CLOUD_EVENT = {
    "type": "object",
    "required": ["id", "source", "specversion", "type"],
    "properties": {
        "id": TEXT,
        "source": TEXT,
        "specversion": {"const": "1.0"},
        "type": TEXT,
        "time": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
    },
}
OPSGENIE = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "message": {"type": "string", "minLength": 1, "maxLength": 130},
        "alias": {"type": "string", "maxLength": 512},
        "priority": {"enum": ["P1", "P2", "P3", "P4", "P5"]},
        "details": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


@pytest.mark.parametrize("message", [FIRED, RAISED, RESOLVED], ids=lambda m: m.event)
def test_bodies_are_of_the_documented_forms(message: Message) -> None:
    jsonschema.validate(messages.pagerduty(message, "k" * 32), PAGERDUTY)
    jsonschema.validate(messages.slack(message), SLACK)
    jsonschema.validate(messages.cloud_event(message), CLOUD_EVENT)
    if message.event != "resolved":
        asked = messages.opsgenie(message, "key")
        jsonschema.validate(asked.body, OPSGENIE)
        assert asked.headers == {"authorization": "GenieKey key"}


def test_one_incident_has_one_key_everywhere() -> None:
    for message in (FIRED, RAISED, RESOLVED):
        assert messages.pagerduty(message, "k")["dedup_key"] == FIRED.incident
        assert messages.cloud_event(message)["subject"] == FIRED.incident
    assert "overrun-requests-1/close" in messages.opsgenie(RESOLVED, "k").path


def test_telemetry_is_no_markup_of_slack() -> None:
    body = json.dumps(messages.slack(FIRED))
    assert "<b>" not in body
    assert "&lt;b&gt;" in body
    assert (
        "<https://o.example/traces?trace=0af7651916cd43dd8448eb211c80319c|A slow request>" in body
    )


def test_a_mail_has_the_fields_and_no_header_of_telemetry() -> None:
    receiver = Receiver(
        kind="email", name="m", host="h", sender="a@example.com", to=("b@example.com",)
    )
    mail = messages.mail(
        msgspec.structs.replace(FIRED, summary="x\r\nBcc: evil@example.com"), receiver
    )
    assert mail["Bcc"] is None
    assert "a slow request: https://o.example/traces" in mail.get_content()
    assert "do now: Add a replica & wait" in mail.get_content()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"evry": "1m"}, "did you mean|evry"),
        ({"every": "1 fortnight"}, "every"),
        ({"receivers": [{"kind": "pager"}]}, "pagerduty"),
        ({"receivers": [{"kind": "slack"}]}, "url is missing"),
        ({"receivers": [{"kind": "slack", "url": "file:///etc/passwd"}]}, "address"),
        ({"receivers": [{"kind": "pagerduty"}]}, "key_file is missing"),
        (
            {"receivers": [{"kind": "email", "host": "h", "from": "a@b", "to": ["x\nBcc: y@z"]}]},
            "addresses",
        ),
        ({"receivers": [{"kind": "webhook", "url": "http://x", "key": "secret"}]}, "key_file"),
        ({"receivers": [{"kind": "webhook", "url": "http://x", "name": "a"}] * 2}, "twice"),
        ({"mute": [{"days": ["someday"], "from": "1:00"}]}, "mute"),
    ],
)
def test_a_mistake_in_the_settings_is_named(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings.read(table)


def test_a_night_is_muted_into_the_next_morning() -> None:
    from datetime import datetime

    table = {"mute": [{"days": ["fri"], "from": "22:00", "to": "06:00", "zone": "Europe/Vienna"}]}
    [mute] = settings.read(table).mutes
    inside = ["2026-11-27T21:30+00:00", "2026-11-28T04:59+00:00"]  # Friday 22:30, Saturday 05:59
    outside = ["2026-11-27T20:59+00:00", "2026-11-28T05:01+00:00", "2026-11-28T22:00+00:00"]
    assert [mute.covers("requests", datetime.fromisoformat(t)) for t in inside] == [True, True]
    assert [mute.covers("requests", datetime.fromisoformat(t)) for t in outside] == [False] * 3


_UNPACKED = Path(sys.prefix) / "prometheus" / "usr" / "bin"
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which(
    _UNPACKED / "prometheus-alertmanager"
)


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    if ALERTMANAGER is None or not Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
        if os.environ.get("CI") == "true":
            pytest.fail("prometheus-alertmanager is not here: `make test` unpacks it")
        pytest.skip("prometheus-alertmanager is not here")
    config = tmp_path / "am.yml"
    config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    flags = (f"--storage.path={tmp_path / 'am'}", "--cluster.listen-address=")
    with listening(ALERTMANAGER, f"--config.file={config}", *flags) as url:
        yield url


def test_a_real_alertmanager_has_one_alert_of_an_incident(alertmanager: str) -> None:
    receiver = Receiver(kind="alertmanager", name="am", url=alertmanager)

    def active() -> list[tuple[str, str]]:
        found = httpx.get(f"{alertmanager}/api/v2/alerts", trust_env=False).json()
        return [(a["labels"]["incident"], a["labels"]["severity"]) for a in found]

    now = time.time()
    fired, raised, resolved = (
        msgspec.structs.replace(m, began=now - 60, at=now, severity=severity)
        for m, severity in ((FIRED, "warning"), (RAISED, "critical"), (RESOLVED, "critical"))
    )
    send(fired, receiver, now, 600.0)
    send(fired, receiver, now, 600.0)
    assert active() == [(FIRED.incident, "warning")]
    send(raised, receiver, now, 600.0)
    assert active() == [(FIRED.incident, "critical")]
    send(resolved, receiver, now, 600.0)
    assert active() == []
