"""What does a message hold, and in which form does each receiver take it? The report's fields, a link to its page, and the trace of one slow request.

Sources: Alertmanager API v2 (`postableAlerts`), CloudEvents 1.0 (JSON format), Slack incoming webhooks (Block Kit), PagerDuty Events API v2, Opsgenie Alert API.
Text of telemetry is printable and bounded before it gets here (`printable`); what Slack reads as markup is escaped.
"""

from __future__ import annotations

import email.policy
import itertools
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from overrun.analysis.front.alerts.incidents import Event, Notice
from overrun.analysis.front.alerts.settings import SEVERITIES, Receiver
from overrun.analysis.front.explanation_lines import lines_of
from overrun.analysis.front.report import Report, leading
from overrun.analysis.front.report_brief import cause_of
from overrun.analysis.words.finding import Finding, printable
from overrun.analysis.words.times import rfc3339

_TITLES: Final = {
    "requests": "Requests miss their limits",
    "targets": "Metrics targets are down",
    "data": "The telemetry cannot be trusted",
    "predictor": "The length predictor has drifted",
}
_EVENTS: Final[dict[Event, str]] = {
    "fired": "FIRING",
    "raised": "MORE SEVERE",
    "resolved": "RESOLVED",
}
_PRIORITIES: Final = {"critical": "P1", "warning": "P3", "info": "P5"}
_SLACK_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LONG: Final = 400


class Message(msgspec.Struct, kw_only=True):
    """One message about one incident. `id` is the same each time that it is sent; `details` are the report's fields as text, in their order."""

    id: str
    event: Event
    incident: str
    group: str
    severity: str
    title: str
    summary: str
    began: float
    at: float
    details: dict[str, str]
    link: str = ""
    trace_id: str = ""
    trace_link: str = ""


def describe(notice: Notice, report: Report | None, slowest: str, link: str) -> Message:
    """The message of a notice. `report` is of the moment, `slowest` the trace of a slow request, `link` the dashboard's address; each may be missing."""
    incident = notice.incident
    finding = cause_of(report) if report else None
    trace = finding.exemplars[0] if finding and finding.exemplars else slowest
    trace = trace if incident.group == "requests" and notice.event != "resolved" else ""
    window = {"from": rfc3339(_moment(incident.began - 900.0)), "to": rfc3339(_moment(notice.at))}
    return Message(
        id=f"{incident.id}-{notice.event}-{int(notice.at)}",
        event=notice.event,
        incident=incident.id,
        group=incident.group,
        severity=incident.severity,
        title=_TITLES[incident.group],
        summary=incident.summary,
        began=incident.began,
        at=notice.at,
        details=_details(report, finding) if report and notice.event != "resolved" else {},
        link=f"{link}/verdict?{urlencode(window)}" if link else "",
        trace_id=trace,
        trace_link=f"{link}/traces?{urlencode({'trace': trace})}" if link and trace else "",
    )


def _details(report: Report, finding: Finding | None) -> dict[str, str]:
    verdict, good, found = report.verdict, report.goodput, leading(report)
    said: dict[str, str | None] = {
        "verdict": (found.sentence if found else "") or verdict.sentence,
        "status": verdict.status.replace("_", " "),
        "stage": verdict.stage,
        **(lines_of(found) if found is not None else _advised(report, finding)),
        "owner": verdict.owner,
        "since": rfc3339(verdict.onset) if verdict.onset else None,
    }
    if found is None:
        said["changed"] = "; ".join(f"{one.what} {one.after}" for one in verdict.changed[:2])
    if good.ratio is not None:
        said["goodput"] = f"{good.ratio:.1%} of requests within every limit"
    return {name: printable(words, _LONG) for name, words in said.items() if words}


def _advised(report: Report, finding: Finding | None) -> dict[str, str | None]:
    """The cause, what to do about it and what that gains, where no explanation says it."""
    verdict, fix = report.verdict, finding.fix if finding else None
    gain = fix.predicted if fix else None
    return {
        "cause": verdict.cause if verdict.cause_status == "known" else None,
        "confidence": f"{finding.confidence:.0%}" if finding else None,
        "do now": verdict.mitigation,
        "fix": fix.title if fix else None,
        "expected": f"{gain.metric} P{gain.quantile * 100:g} {gain.before:,.0f} to {'at most ' if gain.bound else ''}{gain.after:,.0f} ms"
        if gain is not None
        else None,
    }


def text(message: Message) -> str:
    """The message as plain text."""
    lines = [
        f"[{_EVENTS[message.event]}] {message.title} ({message.severity})",
        "",
        message.summary,
    ]
    lines += [""] if message.details else []
    lines += [
        f"{name}: {value}" for name, value in message.details.items() if value != message.summary
    ]
    if message.trace_id:
        lines.append(f"a slow request: {message.trace_link or message.trace_id}")
    if message.link:
        lines.append(f"report: {message.link}")
    return "\n".join(
        [*lines, f"incident {message.incident}, since {rfc3339(_moment(message.began))}"]
    )


class Outgoing(msgspec.Struct, kw_only=True):
    """One HTTP request: path below the receiver's address, body and headers. `key` says where the receiver's secret goes."""

    path: str
    body: Any
    headers: dict[str, str] = {}


def outgoing(message: Message, receiver: Receiver, now: float, alive_s: float) -> Outgoing:
    """The request that carries a message. `alive_s` is how long Alertmanager keeps an alert of which it hears nothing more."""
    if receiver.kind == "alertmanager":
        return Outgoing(path="/api/v2/alerts", body=alerts(message, now, alive_s))
    if receiver.kind == "pagerduty":
        return Outgoing(path="/v2/enqueue", body=pagerduty(message, receiver.key()))
    if receiver.kind == "opsgenie":
        return opsgenie(message, receiver.key())
    if receiver.kind == "slack":
        return Outgoing(path="", body=slack(message))
    headers = {"content-type": "application/cloudevents+json"}
    if key := receiver.key():
        headers["authorization"] = f"Bearer {key}"
    return Outgoing(path="", body=cloud_event(message), headers=headers)


def alerts(message: Message, now: float, alive_s: float) -> list[dict[str, Any]]:
    """Alerts of Alertmanager. The severity is a label, so a raised one ends the alert under its former label."""
    ended = message.event == "resolved"
    annotations = {"summary": message.summary, "description": text(message), **message.details}
    annotations = {name.replace(" ", "_"): value for name, value in annotations.items()}
    if message.trace_id:
        annotations["trace_id"] = message.trace_id

    def alert(severity: str, ends: float) -> dict[str, Any]:
        made = {
            "labels": {
                "alertname": f"Overrun{message.group.title()}",
                "severity": severity,
                "group": message.group,
                "incident": message.incident,
            },
            "annotations": annotations,
            "startsAt": rfc3339(_moment(message.began)),
            "endsAt": rfc3339(_moment(ends)),
        }
        return {**made, "generatorURL": message.link} if message.link else made

    made = [alert(message.severity, message.at if ended else now + alive_s)]
    if message.event == "raised":
        lower = SEVERITIES[: SEVERITIES.index(message.severity)]  # type: ignore[arg-type]
        made += [alert(severity, message.at) for severity in lower]
    return made


def cloud_event(message: Message) -> dict[str, Any]:
    """A CloudEvent in structured form."""
    return {
        "specversion": "1.0",
        "id": message.id,
        "source": "/overrun",
        "type": f"dev.overrun.incident.{message.event}",
        "subject": message.incident,
        "time": rfc3339(_moment(message.at)),
        "datacontenttype": "application/json",
        "data": msgspec.to_builtins(message),
    }


def slack(message: Message) -> dict[str, Any]:
    """A message of Slack's incoming webhooks."""
    fields = [
        {"type": "mrkdwn", "text": f"*{_slack_text(name, 90)}*\n{_slack_text(value, 1_900)}"}
        for name, value in message.details.items()
        if value != message.summary
    ]
    links = [
        f"<{url}|{name}>"
        for url, name in ((message.link, "Report"), (message.trace_link, "A slow request"))
        if url
    ] or ([f"a slow request: {message.trace_id}"] if message.trace_id else [])
    head = f"[{_EVENTS[message.event]}] {message.title}"
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": head[:150]}},
        {
            "type": "section",
            "text": {"type": "mrkdwn", "text": _slack_text(message.summary, 3_000)},
        },
    ]
    if fields:
        blocks.append({"type": "section", "fields": fields[:10]})
    if links:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": "  ".join(links)}})
    return {"text": f"{head}: {_slack_text(message.summary, 2_800)}", "blocks": blocks}


def _slack_text(value: str, most: int) -> str:
    """Text of which nothing is markup, in at most so many characters; no escape is cut in two."""
    pieces = [_SLACK_ESCAPES.get(character, character) for character in value[:most]]
    ends = itertools.accumulate(len(piece) for piece in pieces)
    return "".join(itertools.compress(pieces, (end <= most for end in ends)))


def pagerduty(message: Message, key: str) -> dict[str, Any]:
    """An event of PagerDuty's Events API v2."""
    made: dict[str, Any] = {
        "routing_key": key,
        "event_action": "resolve" if message.event == "resolved" else "trigger",
        "dedup_key": message.incident,
        "payload": {
            "summary": f"{message.title}: {message.summary}"[:1_024],
            "source": "overrun",
            "severity": message.severity,
            "timestamp": rfc3339(_moment(message.at)),
            "component": message.details.get("stage", message.group),
            "group": message.group,
            "class": message.details.get("cause", message.group),
            "custom_details": {**message.details, "trace_id": message.trace_id},
        },
        "client": "Overrun",
        "links": [
            {"href": url, "text": name}
            for url, name in ((message.link, "Report"), (message.trace_link, "A slow request"))
            if url
        ],
    }
    return {**made, "client_url": message.link} if message.link else made


def opsgenie(message: Message, key: str) -> Outgoing:
    """A request of Opsgenie's Alert API: one that creates, or one that closes."""
    headers = {"authorization": f"GenieKey {key}"}
    if message.event == "resolved":
        path = f"/v2/alerts/{quote(message.incident, safe='')}/close?identifierType=alias"
        body: dict[str, Any] = {"source": "overrun", "note": message.summary[:25_000]}
    else:
        path = "/v2/alerts"
        body = {
            "message": f"{message.title}: {message.summary}"[:130],
            "alias": message.incident,
            "description": text(message)[:15_000],
            "priority": _PRIORITIES[message.severity],
            "source": "overrun",
            "tags": ["overrun", message.group],
            "details": {**message.details, "trace_id": message.trace_id},
        }
    return Outgoing(path=path, body=body, headers=headers)


def mail(message: Message, receiver: Receiver) -> EmailMessage:
    """The message as an e-mail; those of one incident are one thread."""
    made = EmailMessage(policy=email.policy.SMTP)
    made["From"], made["To"] = receiver.sender, ", ".join(receiver.to)
    made["Subject"] = printable(
        f"[{_EVENTS[message.event]}] {message.title}: {message.summary}", 140
    )
    made["Message-ID"] = f"<{message.id}@overrun.invalid>"
    if message.event != "fired":
        made["References"] = f"<{message.incident}@overrun.invalid>"
    made["Date"] = _moment(message.at)
    made.set_content(text(message))
    return made


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
