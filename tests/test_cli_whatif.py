"""`overrun whatif`: one sub-command per fix, the same answer from a file and from a server, and refusals in the fix's words."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from overrun.cli import app
from overrun.sample_traces.replay import RECORDINGS_PATH
from tests.conftest import ServerProcess

FIX = ("whatif", "timeout-fallback", "--timeout-ms", "150", "--fallback-ms", "20")


def here(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whatif") / "t.db"
    assert here("import", RECORDINGS_PATH / "vllm-joined", "--db", path).exit_code == 0
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(
        tmp_path_factory.mktemp("whatif-server") / "t.db",
        environment={"OVERRUN_QUIET_S": "0.1"},
        forked=True,
    )
    assert here("import", RECORDINGS_PATH / "vllm-joined", "--url", made.http).exit_code == 0
    yield made
    made.stop()


def test_the_answer_is_json_with_effects_and_curves(db: Path) -> None:
    done = here(*FIX, "--db", db, "--output", "json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["fix"], answer["method"], answer["requests"]) == (
        "timeout_fallback",
        "exact",
        20,
    )
    assert answer["parameters"] == {"timeout_ms": 150.0, "fallback_ms": 20.0, "until": "end"}
    [median] = [e for e in answer["effects"] if (e["metric"], e["quantile"]) == ("e2e", 0.5)]
    assert median["after"] <= median["before"]
    assert "P95 needs at least 59" in answer["reasons"]["predicted"]
    assert {curve["metric"] for curve in answer["curves"]} >= {"e2e"}


def test_a_server_answers_the_same_from_its_worker(db: Path, server: ServerProcess) -> None:
    window = ("--from", "2020-01-01T00:00:00Z")
    ours, theirs = (
        json.loads(here(*FIX, *window, *where, "--output", "json").stdout)
        for where in (("--db", db), ("--url", server.http))
    )
    assert ours == theirs
    said = here("whatif", "replicas", "--replicas", "2", *window, "--url", server.http)
    assert said.exit_code == 0
    assert "at least 100 are needed" in " ".join(said.stdout.split())


def test_the_server_lists_its_fixes_and_refuses_by_name(server: ServerProcess) -> None:
    fixes = {fix["fix"]: fix for fix in httpx.get(f"{server.http}/api/v1/whatif").json()}
    assert fixes["cap"]["parameters"] == [
        {
            "name": "max_tokens",
            "kind": "int",
            "help": "most output tokens per answer",
            "required": True,
            "default": None,
            "least": 1.0,
            "most": 10_000_000.0,
            "open_ends": [],
        }
    ]
    for path, sentence in (
        ("capp", "fix 'capp' is unknown: nearest known is 'cap'"),
        ("cap", "cap needs max_tokens: most output tokens per answer"),
        ("cap?max_tokens=1&x=2", "unknown parameter 'x'"),
        ("cap?max_tokens=0", "max_tokens '0' is not accepted"),
    ):
        answer = httpx.get(f"{server.http}/api/v1/whatif/{path}")
        assert answer.status_code == 400
        assert sentence in answer.json()["error"]


def test_the_text_says_why_there_is_no_headline(db: Path) -> None:
    done = here(*FIX, "--db", db)
    assert done.exit_code == 0
    assert done.stdout.startswith(
        "What if: Cut calls after 150 ms and answer with a fallback in 20 ms?"
    )
    assert "No answer: P95 needs at least 59" in done.stdout


def test_a_filter_that_names_nothing_is_refused(db: Path) -> None:
    for fix in (
        ("cap", "--max-tokens", "10"),
        ("routing", "--policy", "least_load"),
        ("tenant-quota",),
        ("streaming",),
    ):
        done = here("whatif", *fix, "--db", db, "--service", "nobody")
        assert done.exit_code == 2
        assert "--service 'nobody' is not stored" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("whatif", "cap", "--max-tokens", "many"), "max_tokens 'many' is not accepted"),
        (("whatif", "cap"), "cap needs max_tokens"),
        (("whatif", "capp", "--max-tokens", "10"), "fix 'capp' is unknown: nearest known is 'cap'"),
        (("whatif", "cap", "--max-tokens", "10", "--output", "xml"), "--output 'xml' is not known"),
        (
            ("whatif", "cap", "--max-tokens", "10", "--metric", "itl"),
            "metric 'itl' cannot be predicted",
        ),
    ],
)
def test_bad_input_ends_with_2(db: Path, arguments: tuple[str, ...], said: str) -> None:
    done = here(*arguments, "--db", db)
    assert done.exit_code == 2
    assert said in done.stderr


# The recording's first minute: an engine that falls behind.
WINDOW = {
    "from": "2026-11-20T10:00:00Z",
    "to": "2026-11-20T10:01:00Z",
    "baseline": "none",
    "slo": "ttft:1000 e2el:5000",
}


def test_a_server_simulates_replicas_and_says_how_well_it_fits(server: ServerProcess) -> None:
    # Last in this file: the tests above know a server with twenty requests.
    assert here("import", RECORDINGS_PATH / "vllm-spans", "--url", server.http).exit_code == 0
    answer = httpx.get(
        f"{server.http}/api/v1/whatif/replicas", params={"replicas": "2", **WINDOW}, timeout=300.0
    ).json()
    assert answer["method"] == "simulated", answer
    predicted = answer["predicted"]
    low, high = predicted["interval"]
    assert low <= predicted["after"] <= high < predicted["before"]
    assert 0.0 <= predicted["backtest_error_ratio"] < 0.2
    assert predicted["cost"]["replicas_factor"] == 2.0


def test_a_report_takes_the_simulated_figure_when_the_worker_has_made_it(
    server: ServerProcess,
) -> None:
    until = time.monotonic() + 90.0
    fix = None
    while time.monotonic() < until:
        [finding] = [
            f
            for f in httpx.get(f"{server.http}/api/v1/report", params=WINDOW, timeout=60.0).json()[
                "findings"
            ]
            if f["rule"] == "under_capacity"
        ]
        fix = finding["fix"]
        if fix["method"] == "simulated":
            break
        assert "ask again in a minute" in fix["reasons"]["simulated"]
        time.sleep(1.0)  # the worker needs the processor that answering takes
    assert fix is not None
    assert (fix["method"], fix["whatif"]) == ("simulated", "replicas")
    assert fix["predicted"]["after"] < fix["predicted"]["before"]
    assert fix["predicted"]["backtest_error_ratio"] is not None


def test_a_server_that_ends_waits_for_no_what_if(server: ServerProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            httpx.get,
            f"{server.http}/api/v1/whatif/replicas",
            params={**WINDOW, "replicas": "3"},
            timeout=60.0,
        )
        time.sleep(0.5)
        assert server.stop() == 0, server.said
        answer = asked.result()
    assert answer.status_code in (200, 503), answer.text
