"""A client and its server may share an id."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import request_of, root, stages_ms
from tests.collector.oracle_build import CLIENT, SERVER, Made, chat


@pytest.mark.parametrize("server_first", [True, False])
def test_client_and_server_that_share_an_id_are_two_spans(server_first: bool) -> None:
    client = Made(2, "post", 100, 900, parent=1, kind=CLIENT, attributes={"http.method": "POST"})
    server = Made(
        2,
        "post /answer",
        200,
        800,
        parent=1,
        kind=SERVER,
        service="gateway",
        attributes={"http.method": "POST"},
    )
    inside = chat(3, 300, 700, parent=2, out=50, service="gateway")
    request = request_of(
        root(1000), *((server, client) if server_first else (client, server)), inside
    )
    assert (request["spans"], request["service"]) == (4, "app")
    assert {stage: ms for stage, ms in stages_ms(request).items() if ms} == {
        "generation": 400.0,
        "network": 200.0,
        "other": 400.0,
    }
