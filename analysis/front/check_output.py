"""The outcome of a gate for people and for CI: plain text, JUnit XML, and GitHub's workflow commands.

Sources: the JUnit schema that Jenkins, GitLab and GitHub's test reporters read (testsuites, testsuite, testcase, failure); GitHub's documentation of workflow
commands (`::error title=...::message`, with %, CR and LF escaped, in properties : and , too).
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from overrun.analysis.front.check import CheckResult, Gate
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.finding import printable

_LONGEST: Final = 2_000


def render(result: CheckResult, form: str) -> str:
    """Return the outcome as text, json, junit or github."""
    if form == "json":
        return encode(result).decode()
    if form == "junit":
        return _junit(result)
    if form == "github":
        return _github(result)
    return "\n".join([result.sentence, *(f"- {doubt}" for doubt in result.doubts)])


def _junit(result: CheckResult) -> str:
    failed = sum(not gate.passed for gate in result.gates)
    counts = {"tests": str(len(result.gates)), "failures": str(failed), "errors": "0"}
    top = ElementTree.Element("testsuites", {"name": "overrun", **counts})
    suite = ElementTree.SubElement(top, "testsuite", {"name": "overrun check", **counts})
    for gate in result.gates:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": "overrun.check", "name": _clean(gate.gate)}
        )
        if gate.passed:
            ElementTree.SubElement(case, "system-out").text = _clean(_said(gate))
        else:
            failure = ElementTree.SubElement(
                case, "failure", {"type": "slo", "message": _clean(_said(gate))}
            )
            failure.text = _clean("\n".join(gate.numbers)) or _clean(_said(gate))
    if result.doubts:
        ElementTree.SubElement(suite, "system-err").text = "\n".join(map(_clean, result.doubts))
    ElementTree.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(
        top, encoding="unicode"
    )


def _github(result: CheckResult) -> str:
    lines = [
        _command("notice" if gate.passed else "error", f"overrun: {gate.gate}", _long(gate))
        for gate in result.gates
    ]
    lines += [_command("warning", "overrun: data", doubt) for doubt in result.doubts]
    return "\n".join(lines)


def _command(level: str, title: str, message: str) -> str:
    name = _escaped(_clean(title)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_escaped(_clean(message))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _said(gate: Gate) -> str:
    said = f"{gate.gate} is {gate.seen.rstrip('.')}, required: {gate.wanted}"
    return said + (f". {gate.doubt}" if gate.doubt else "")


def _long(gate: Gate) -> str:
    return _said(gate) + ("\n" + "\n".join(gate.numbers) if gate.numbers else "")


def _clean(text: str) -> str:
    """Text of telemetry without control characters; line breaks stay."""
    return "\n".join(printable(line, _LONGEST) for line in text.split("\n"))
