"""What a server without data prints can be pasted where the senders are."""

import pytest

from overrun.analysis.front.greeting import greeting


def test_senders_get_the_address_that_the_server_has() -> None:
    said = greeting("127.0.0.1:4317", "127.0.0.1:4318")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 " in said
    assert "--otlp-traces-endpoint http://127.0.0.1:4317\n" in said
    assert said.endswith("overrun report --url http://127.0.0.1:4318\n")
    assert "HOST" not in said
    assert "HEADERS" not in said


@pytest.mark.parametrize("bound", ["0.0.0.0", "[::]"])
def test_nobody_sends_to_every_address(bound: str) -> None:
    said = greeting(f"{bound}:4317", f"{bound}:4318", "https")
    assert bound not in said
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=https://HOST:4318 " in said
    assert "HOST is this machine's name" in said
    assert said.endswith("overrun report --url https://127.0.0.1:4318\n")


def test_senders_that_need_a_token_learn_how_to_send_it() -> None:
    said = greeting("127.0.0.1:4317", None, token=True)
    assert "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN\n" in said
    assert said.endswith("overrun report --db FILE\n")
