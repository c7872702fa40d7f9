"""What does a call ask for, whoever names it? Keys by their words, parameters in JSON opened, contents reduced to their type."""

import json

import polars as pl
import pytest

from overrun.analysis.evidence.call_kind import GIVEN, PARAMETERS, family_of, traits


@pytest.mark.parametrize(
    ("key", "family"),
    [
        ("gen_ai.output.type", "response format"),
        ("gen_ai.openai.request.response_format", "response format"),
        ("gen_ai.request.structured_output_schema", "response format"),
        ("ai.schema", "response format"),
        ("guided_json", "response format"),
        ("ai.prompt.toolChoice", "tool choice"),
        ("gen_ai.tool.definitions", "tools"),
        ("lora_request", "adapter"),
        ("gen_ai.openai.request.service_tier", "service tier"),
        ("gen_ai.response.finish_reasons", None),
        ("gen_ai.usage.reasoning_effort_tokens", None),
        ("openai.response.service_tier", "served tier"),
        ("gen_ai.openai.response.system_fingerprint", "backend"),
        ("server.address", "deployment"),
        ("gen_ai.response.model", None),
    ],
)
def test_keys_are_put_together_by_what_they_speak_of(key: str, family: str | None) -> None:
    assert family_of(key) == family


def asked(key: str, value: str) -> list[tuple[str, str]]:
    rows = pl.DataFrame({"trace_key": [1], "start_s": [2.0], "key": [key], "value": [value]})
    return traits(rows).sort("family").select("family", "value").rows()


def test_parameters_in_json_are_opened() -> None:
    told = {"tools": [{"type": "function"}], "tool_choice": "required", "temperature": 0.1}
    told |= {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}
    assert asked("llm.invocation_parameters", json.dumps(told)) == [
        ("response format", "json_schema"),
        ("tool choice", "required"),
        ("tools", GIVEN),
    ]


def test_a_text_that_was_not_stored_is_known_by_its_hash() -> None:
    text = "[text: 113 characters, 025ef8086300f048]"
    assert asked("llm.invocation_parameters", text) == [(PARAMETERS, "of hash 025ef808")]
    assert asked("gen_ai.request.structured_output_schema", text) == [("response format", GIVEN)]


@pytest.mark.parametrize("value", ["not json", "[]", "{}", "null", '"text"', '{"tools": null}'])
def test_what_says_nothing_is_left_out(value: str) -> None:
    assert asked("llm.invocation_parameters", value) == []
