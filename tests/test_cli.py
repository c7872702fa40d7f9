"""The command line: standard output carries only the result, bad input ends with 2 and a sentence that names the remedy."""

import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from overrun.cli import app
from overrun.sample_traces.replay import RECORDINGS_PATH
from tests import programs
from tests.conftest import ROOT, ServerProcess
from tests.waiting import LIMIT_S, until


def here(*arguments: str | Path) -> Result:
    """The same command in this process: what is refused early need not pay for a new interpreter."""
    return CliRunner().invoke(app, [str(a) for a in arguments])


def overrun(
    *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("OVERRUN_")}
    given = inherited | {"PYTHONPATH": str(ROOT), "COLUMNS": "110"} | environment
    return programs.run([*map(str, arguments)], cwd or ROOT, given)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "t.db"
    done = overrun("store", "import", RECORDINGS_PATH / "vllm-joined", "--db", path)
    assert (done.returncode, done.stdout) == (
        0,
        "2 files, 2 OTLP requests; 60 spans and data points stored; 20 requests, 20 calls of models (0 failed, 20 with\n"
        "  a first token, 20 with tokens)\n"
        "001.traces.pb.zst and 1 more: read as OTLP (its messages)\n",
    ), done.stderr
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(
        tmp_path_factory.mktemp("cli-server") / "t.db",
        environment={"OVERRUN_QUIET_S": "0.1"},
        forked=True,
    )
    assert (
        here("store", "import", RECORDINGS_PATH / "vllm-joined", "--url", made.http).exit_code == 0
    )
    yield made
    made.stop()


EVER = ("--from", "2020-01-01T00:00:00Z", "--to", "2035-01-01T00:00:00Z")


def both(db: Path, server: ServerProcess, *command: str) -> tuple[str, str]:
    """What a command prints of the file and of the server that have the same telemetry."""
    return here(*command, "--db", db).stdout, here(*command, "--url", server.http).stdout


@pytest.mark.parametrize(
    "command", ["report", "check", "traces", "explain facts", "doctor", "whatif streaming"]
)
def test_any_source_is_named_in_its_place(db: Path, command: str) -> None:
    flagged = here(*command.split(), "--db", db)
    for named in (db, RECORDINGS_PATH / "vllm-joined"):
        done = here(*command.split(), named)
        assert (done.exit_code, done.stdout[:150]) == (flagged.exit_code, flagged.stdout[:150])


def test_doctor_says_the_same_of_a_file_and_of_a_server(db: Path, server: ServerProcess) -> None:
    answers = both(db, server, "doctor", "--since", "365d", "--output", "json")
    of_file, of_server = map(json.loads, answers)
    # Files that are imported together share a commit.
    assert of_file["store"].pop("commits") <= of_server["store"].pop("commits")
    assert of_file == of_server
    gateway = of_file["services"][0]
    assert (gateway["service"], gateway["model_calls"], gateway["dialects"]["genai"]) == (
        "chat-gateway",
        20,
        20,
    )
    assert "never seen" in here("doctor", "--db", db).stdout


def test_a_mistake_in_own_attributes_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "overrun.toml").write_text('[attributes]\n"acme.in" = "input_token"\n')
    done = here(
        "store",
        "import",
        RECORDINGS_PATH / "vllm-joined",
        "--db",
        tmp_path / "t.db",
        "--config",
        tmp_path / "overrun.toml",
    )
    assert done.exit_code == 2
    assert "did you mean input_tokens?" in done.stderr


def test_the_help_has_every_command_in_a_section_and_whole_descriptions() -> None:
    done, short = here("--help"), here("-h")
    assert (done.exit_code, done.stdout) == (0, short.stdout)
    assert "..." not in done.stdout.split("Commands:")[1]
    assert "More:" not in done.stdout
    asked = here("report", "-h").stdout
    assert asked.index("Which requests:") < asked.index("--since") < asked.index("Options:")


@pytest.mark.parametrize(
    "command",
    [
        "report --db nowhere.db",
        "report --db pyproject.toml --since soon",
        "report --db pyproject.toml --slo tfft:1",
        "store import nowhere.pb --db new.db",
        "check nowhere.json",
        "store export frob --db pyproject.toml",
        "store forget --user a --db nowhere.db",
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_loaded(command: str) -> None:
    heavy = {"duckdb", "polars", "numpy", "pyarrow", "httpx", "numba"}
    code = f"""
import sys
from overrun import cli
sys.argv = ["overrun", *{command.split()!r}]
try:
    cli.main()
except SystemExit as end:
    print(end.code, *sorted({heavy!r} & set(sys.modules)))
"""
    done = programs.fresh(code)
    assert (done.stdout.strip(), done.stderr.count("\n")) == ("2", 1), done.stderr


def test_a_report_as_json_is_the_only_thing_on_standard_output(db: Path) -> None:
    done = overrun("report", "--db", db, "--output", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["schema"], report["window"]["requests"]) == (
        0,
        "overrun.report/1",
        20,
    )


def test_file_and_server_give_the_same_report(db: Path, server: ServerProcess) -> None:
    flags = (*EVER, "--baseline", "none", "--output", "json")
    of_file, of_server = map(json.loads, both(db, server, "report", *flags))
    for part in ("latency", "stages", "window"):
        assert of_file[part] == of_server[part]


def test_the_version_is_the_installed_one() -> None:
    done = overrun("--version")
    assert (done.returncode, done.stdout) == (0, f"overrun {version('overrun')}\n")


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        (("length", "train", "--trace", "README.md", "--out", "a"), "xgboost", "train"),
        (("length", "predict", "--artifact", "a"), "onnxruntime", "predict"),
        (("length", "serve", "--artifact", "a"), "onnxruntime", "predict"),
        (
            ("length", "routing", "--artifact", "a", "--trace", "README.md"),
            "onnxruntime",
            "predict",
        ),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(
    command: tuple[str, ...], missing: str, extra: str
) -> None:
    code = f"import sys\nsys.modules[{missing!r}] = None\nsys.argv = ['overrun', *{command!r}]\nfrom overrun import cli\ncli.main()"
    done = programs.fresh(code)
    assert (done.returncode, done.stderr) == (
        2,
        f"overrun: {missing} is not installed: install overrun[{extra}]\n",
    )


def test_who_asks_a_server_waits_for_no_compiler(server: ServerProcess) -> None:
    """Compilers, decoders, readers of files and Parquet are what a server needs, and who reads files."""
    sides = ["--before", "2020-01-01..2024-01-01", "--after", "2024-01-01..now"]
    questions = [
        ["report", "--help"],
        ["report", "--url", server.http, *EVER],
        ["explain", "budget", "--url", server.http, *EVER],
        ["doctor", "--url", server.http],
        ["compare", "--url", server.http, *sides],
    ]
    # One after the other in one interpreter: what none of them has loaded at the end, each leaves out.
    code = f"""
import sys
from overrun import cli
for asked in {questions!r}:
    sys.argv = ["overrun", *asked]
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    print("ended with", code, *sorted({{"numba", "grpc", "opentelemetry", "ptars", "scipy"}} & set(sys.modules)))
"""
    done = programs.fresh(code)
    parts = done.stdout.split("ended with 0\n")
    assert (done.returncode, done.stderr.strip(), len(parts), parts[-1]) == (
        0,
        "",
        len(questions) + 1,
        "",
    )
    assert all(parts[:-1])


@pytest.mark.parametrize("command", ["check", "report"])
def test_a_small_file_is_judged_where_nothing_is_compiled(command: str, tmp_path: Path) -> None:
    code = f"""
import os, sys
os.environ["XDG_CACHE_HOME"] = {str(tmp_path)!r}
from overrun import cli
sys.argv = ["overrun", {command!r}, {str(RECORDINGS_PATH / "vllm-joined")!r}, "--slo", "ttft:1"]
try:
    cli.main()
except SystemExit as end:
    print("ended with", end.code, "numba" in sys.modules)
"""
    done = programs.fresh(code)
    ended = "ended with 1 False" if command == "check" else ""
    assert done.stdout.strip().endswith(ended), done.stderr
    assert not list(tmp_path.rglob("*.nbc"))


def a_trace(db: Path) -> str:
    from overrun.collector.store.database import open_store

    store = open_store(db, create=False)
    [(found,)] = store.connection.execute(
        "select trace_id from v_requests order by start limit 1"
    ).fetchall()
    store.close()
    return str(found)


def test_a_trace_is_drawn_as_a_waterfall_with_its_critical_path(
    db: Path, server: ServerProcess
) -> None:
    wanted = a_trace(db)
    of_file, of_server = (
        here("report", "--db", db, "--trace", wanted.upper()),
        here("report", "--url", server.http, "--trace", wanted),
    )
    assert (of_file.exit_code, of_file.stderr) == (0, "")
    assert of_file.stdout == of_server.stdout
    assert wanted in of_file.stdout
    assert all(word in of_file.stdout for word in ("llm_request", "queue", "prefill"))
    document = json.loads(here("report", "--db", db, "--trace", wanted, "--output", "json").stdout)
    assert len(document["spans"]) == 3
    assert sum(document["stages"].values()) == pytest.approx(document["e2e_ms"], abs=1e-6)


BAD = [
    ("report --db {db} --slo tfft:100", "nearest known is 'ttft'"),
    ("report --db {db} --slo ttft:fast", "fast"),
    ("report --db {db} --since soon", "soon"),
    ("report --db {db} --from 2026-13-45", "2026-13-45"),
    ("report --db {db} --output yaml", "use text"),
    ("report --db {db} --url http://127.0.0.1:1", "both given"),
    ("report --db nowhere.db", "there is no database at nowhere.db"),
    ("report --url http://127.0.0.1:1", "start it with `overrun serve`"),
    ("report --url 'not a url'", "cannot be reached"),
    ("report --db {db} --trace xyz", "32 hexadecimal digits"),
    (f"report --db {{db}} --trace {'f' * 32}", "no span of trace"),
    ("report --db {db} --config nowhere.toml", "cannot read the settings file"),
    ("store import nowhere.pb --db new.db", "there is nothing at nowhere.pb"),
    ("store import {db} --db new.db", "it looks like a DuckDB database"),
    ("store import x.pb", "--db FILE or --url"),
    ("store import x.pb --db a --url b", "one of them"),
    ("compare --db {db} --before yesterday --after today", "yesterday"),
    ("frobnicate", "frobnicate"),
    ("serve --http-port x", "valid integer"),
    ("serve --http-port 70000 --db new.db", "out of range"),
    ("serve --host 999.1.1.1 --db new.db --grpc-port 0 --http-port 0", "999.1.1.1"),
    ("traces --stage quee --db {db}", "--stage 'quee' is no stage: nearest known is 'queue'"),
    ("traces --stage queue --slowest --db {db}", "together with --slowest or --sort"),
    ("traces --sort ttft --slowest --db {db}", "--slowest was given together with --sort"),
    ("traces --limit 0 --db {db}", "limit '0' is not a whole number from 1 to 1000"),
    ("report --watch --output json --db {db}", "--watch repeats the report"),
    (f"report --watch --trace {'f' * 32} --db {{db}}", "--watch repeats the report"),
    ("report --every 500ms --db {db}", "--every 500ms is too short"),
    ("top --every soon --db {db}", "--every: 'soon' is no duration"),
    ("top --every 500ms --db {db}", "--every 500ms is too short"),
    ("whatif cap --max-tokens many --db {db}", "max_tokens 'many' is not accepted"),
    ("whatif cap --db {db}", "cap needs max_tokens"),
    ("whatif capp --max-tokens 10 --db {db}", "fix 'capp' is unknown: nearest known is 'cap'"),
    ("whatif cap --max-tokens 10 --output xml --db {db}", "'xml' is not known"),
    ("whatif cap --max-tokens 10 --metric itl --db {db}", "'itl' cannot be predicted"),
]


@pytest.mark.parametrize(("command", "wanted"), BAD)
def test_bad_input_ends_with_2_a_sentence_and_nothing_on_standard_output(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, wanted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = here(*shlex.split(command.format(db=db)))
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert wanted in done.stderr


def test_a_refusal_of_the_real_program_ends_with_2_and_no_traceback(tmp_path: Path) -> None:
    done = overrun("report", "--db", "nowhere.db", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("overrun: there is no database at nowhere.db")
    assert done.stderr.count("\n") == 1


def test_with_both_ports_taken_the_server_ends_with_2(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        ports = ("--grpc-port", port, "--http-port", port)
        done = overrun("serve", "--db", tmp_path / "t.db", *ports, cwd=tmp_path)
    said = done.stderr.splitlines()
    assert (done.returncode, "neither port is free" in said[-1]) == (2, True), done.stderr
    assert done.stderr.count(f"127.0.0.1:{port} cannot be used") == 2


def test_a_bad_settings_file_stops_every_command_with_the_nearest_known_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overrun.toml").write_text("[collector]\nhttp_prot = 1\n")
    for command in (("serve",), ("admin", "config"), ("report",)):
        done = here(*command)
        assert (done.exit_code, "did you mean http_port?" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[slo]\ntfft = 3", "nearest known is 'ttft'"),
        ('[budgets."/x"]\nretreival = 300', "nearest known is 'retrieval'"),
        ('[prices."m"]\nimput = 1', "nearest known is 'input'"),
    ],
)
def test_a_server_does_not_start_with_settings_that_no_question_could_be_answered_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overrun.toml").write_text(table)
    done = here("serve", "--grpc-port", "0", "--http-port", "0")
    assert (done.exit_code, said in done.stderr) == (2, True)
    assert not (tmp_path / "overrun.db").exists()


def test_config_show_prints_value_and_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OVERRUN_STORE_TEXT", "true")
    (tmp_path / "overrun.toml").write_text("[collector]\nqueue_mib = 7\n")
    done = here("admin", "config")
    assert "[collector] queue_mib = 7  (file overrun.toml)" in done.stdout
    assert "[privacy] store_text = True  (environment OVERRUN_STORE_TEXT)" in done.stdout


def test_a_file_that_a_server_owns_is_not_opened_and_its_url_is_named(
    server: ServerProcess,
) -> None:
    done = here("report", "--db", server.db)
    assert (done.exit_code, f"--url {server.http}" in done.stderr) == (2, True)


def test_the_demo_answers_three_incidents_in_five_lines_each() -> None:
    done = overrun("demo", "--once", "--no-dashboard")
    assert done.returncode == 0, done.stderr
    told = done.stdout.strip().split("\n\n")
    causes = ("prefix cache lost", "under capacity", "slow dependency")
    assert len(told) == len(causes)
    for cause, one in zip(causes, told, strict=True):
        _title, *lines = one.split("\n")
        assert [line.split()[0] for line in lines] == ["SLOW", "WHY", "DO", "GAIN", "SURE?"]
        assert cause in lines[-1]


MIDDLE = "2026-11-20T10:00:05Z"
SIDES = ("--before", f"{EVER[1]}..{MIDDLE}", "--after", f"{MIDDLE}..{EVER[3]}")


@pytest.mark.parametrize(
    ("command", "start"),
    [
        (("compare", *SIDES, "--output", "json"), '{"schema":"overrun.compare/1"'),
        (("compare", *SIDES), "COMPARE"),
        (("budget", *EVER, "--slo", "e2e:3600s", "--output", "json"), "{"),
        (("budget", *EVER, "--slo", "e2e:3600s", "--output", "toml"), ""),
        (("budget", *EVER, "--slo", "e2e:3600s"), ""),
        (("facts", *EVER, "--output", "json"), "{"),
        (("facts", *EVER), "No facts: Not enough data: 20 requests"),  # have no percentile to judge
    ],
)
def test_a_file_and_a_server_are_answered_the_same(
    db: Path, server: ServerProcess, command: tuple[str, ...], start: str
) -> None:
    of_file, of_server = both(db, server, *command)
    assert of_file == of_server != ""
    assert of_file.startswith(start)


def test_the_details_of_a_report_end_with_the_facts(db: Path) -> None:
    facts = here("report", "--db", db, *EVER, "--details").stdout.split("\nFACTS\n")[1]
    assert facts == here("facts", "--db", db, *EVER).stdout


def test_check_ends_with_0_1_or_2(db: Path, tmp_path: Path) -> None:
    assert here("check", "--db", db, "--slo", "e2e:1h").exit_code == 2
    assert here("check", "--db", db, "--slo", "e2e:3600s").exit_code == 0
    failed = here("check", "--db", db, "--slo", "e2e:1ms", "--output", "json")
    assert (failed.exit_code, json.loads(failed.stdout)["goodput_ratio"]) == (1, 0.0)
    assert here("check", RECORDINGS_PATH / "vllm-joined", "--slo", "e2e:3600s").exit_code == 0
    assert here("check", "--db", db, "--route", "/nowhere").exit_code == 2
    assert here("check", tmp_path / "nothing").exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        ["report"],
        ["check"],
        ["budget"],
        ["compare", "--before", "-2h..-1h", "--after", "-1h.."],
        ["whatif", "load", "--factor", "2"],
    ],
)
def test_a_filter_that_names_nothing_ends_with_2(
    db: Path, server: ServerProcess, command: list[str]
) -> None:
    for asked in (("--db", str(db)), ("--url", server.http)):
        done = here(*command, "--model", "no-such-model", *asked)
        assert done.exit_code == 2
        assert "--model 'no-such-model' is not stored: " in done.stderr


def test_traces_are_listed_the_same_from_a_file_and_from_a_server(
    db: Path, server: ServerProcess
) -> None:
    asked = ("--from", "2020-01-01T00:00:00Z", "--limit", "2")
    listed = here("traces", "--db", db, *asked)
    assert listed.exit_code == 0
    assert "2 of 20 requests, by e2e, largest first" in listed.stdout
    from_server = here("traces", "--url", server.http, *asked).stdout
    # The command that draws one of them names where it was found.
    assert from_server == listed.stdout.replace(f"--db {db}", f"--url {server.http}")
    by_stage = json.loads(here("traces", "--db", db, "--stage", "queue", "--output", "json").stdout)
    waits = [row["stages"].get("queue", 0.0) for row in by_stage["rows"]]
    assert waits == sorted(waits, reverse=True)
    assert here("traces", "--db", db, "--failed").stdout.startswith("No such request")


FIX = ("whatif", "timeout-fallback", "--timeout-ms", "150", "--fallback-ms", "20")


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
    ours, theirs = both(db, server, *FIX, *EVER, "--output", "json")
    assert json.loads(ours) == json.loads(theirs)
    said = here("whatif", "replicas", "--replicas", "2", *EVER, "--url", server.http)
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


# The recording's first minute: an engine that falls behind.
WINDOW = {
    "from": "2026-11-20T10:00:00Z",
    "to": "2026-11-20T10:01:00Z",
    "baseline": "none",
    "slo": "ttft:1000 e2el:5000",
}


def test_a_server_simulates_replicas_and_says_how_well_it_fits(server: ServerProcess) -> None:
    # Last in this file: the tests above know a server with twenty requests.
    assert (
        here("store", "import", RECORDINGS_PATH / "vllm-spans", "--url", server.http).exit_code == 0
    )
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
    def simulated() -> dict[str, Any] | None:
        url = f"{server.http}/api/v1/report"
        findings = httpx.get(url, params=WINDOW, timeout=LIMIT_S).json()["findings"]
        [fix] = [one["fix"] for one in findings if one["rule"] == "under_capacity"]
        if fix["method"] != "simulated":
            assert "ask again in a minute" in fix["reasons"]["simulated"]
            time.sleep(1.0)  # the worker needs the processor that answering takes
            return None
        return dict(fix)

    fix = until(simulated)
    assert fix is not None
    assert fix["whatif"] == "replicas"
    assert fix["predicted"]["after"] < fix["predicted"]["before"]
    assert fix["predicted"]["backtest_error_ratio"] is not None


def test_a_server_that_ends_waits_for_no_what_if(server: ServerProcess) -> None:
    query = urlencode({**WINDOW, "replicas": "3"})
    asking = HTTPConnection(server.address, timeout=LIMIT_S)
    asking.request("GET", f"/api/v1/whatif/replicas?{query}")
    httpx.get(f"{server.http}/healthz", timeout=LIMIT_S)  # which came later, so it has both
    assert server.stop() == 0, server.said
    answer = asking.getresponse()
    assert answer.status in (200, 503), answer.read()
    asking.close()
