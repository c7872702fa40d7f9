"""Settings: flag before environment before file before default; whatever is wrong stops the start with its name and the nearest known one."""

from pathlib import Path
from typing import Any

import pytest

from overrun.collector.config import CollectorSettings, PrivacySettings, described, load
from overrun.collector.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "overrun.toml"
    path.write_text(text)
    return path


def test_without_anything_the_defaults_hold_and_it_listens_on_this_machine_only() -> None:
    found = load(None, environment={})
    assert (found.collector, found.privacy) == (CollectorSettings(), PrivacySettings())
    assert (found.collector.host, found.privacy.store_text, found.privacy.hash_users) == (
        "127.0.0.1",
        False,
        True,
    )


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "[collector]\ngrpc_port = 1\nhttp_port = 1\nqueue_mib = 1\n[privacy]\nstore_text = true\n",
    )
    found = load(
        path,
        environment={
            "OVERRUN_GRPC_PORT": "2",
            "OVERRUN_HTTP_PORT": "2",
            "OVERRUN_STORE_TEXT": "no",
        },
        flags={"collector.grpc_port": 3, "collector.http_port": None},
    )
    c = found.collector
    assert (c.grpc_port, c.http_port, c.queue_mib, c.max_body_mib, found.privacy.store_text) == (
        3,
        2,
        1,
        16,
        False,
    )
    assert found.origins["collector.grpc_port"] == "flag"
    assert found.origins["collector.http_port"] == "environment OVERRUN_HTTP_PORT"
    assert found.origins["collector.queue_mib"] == f"file {path}"
    assert "collector.max_body_mib" not in found.origins


def test_a_zero_given_as_flag_is_a_value() -> None:
    assert (
        load(
            None, environment={"OVERRUN_HTTP_PORT": "9"}, flags={"collector.http_port": 0}
        ).collector.http_port
        == 0
    )


def test_the_password_of_an_address_is_not_shown() -> None:
    lake = "ducklake:postgresql://me:s3cret@db/lake?data=/srv/lake"
    settings = load(environment={}, flags={"collector.store": lake})
    [line] = [one for one in described(settings) if one.startswith("[collector] store ")]
    assert "me:***@db/lake" in line


def test_every_setting_is_shown_with_its_value_and_origin(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '[collector]\nqueue_mib = 7\n[slo]\nttft = 1000\n[budgets."/chat"]\nretrieval = 300\n',
    )
    lines = described(
        load(path, environment={"OVERRUN_QUIET_S": "3"}, flags={"collector.db": "x.db"})
    )
    assert f"[collector] queue_mib = 7  (file {path})" in lines
    assert "[collector] quiet_s = 3.0  (environment OVERRUN_QUIET_S)" in lines
    assert "[collector] db = 'x.db'  (flag)" in lines
    assert "[privacy] store_text = False  (default)" in lines
    assert "[slo] ttft = 1000  (file)" in lines
    assert "[budgets] /chat = {'retrieval': 300}  (file)" in lines


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "[collector]\nhttp_prot = 1",
            r"unknown key \[collector\] http_prot: did you mean http_port\?",
        ),
        ("[privacy]\nstore_texts = true", r"\[privacy\] store_texts: did you mean store_text\?"),
        (
            "[privacy]\nzzz = 1",
            r"known are attributes, hash_users, keep_long, prompt_features, prompt_table, store_text",
        ),
        ("[colector]\nhttp_port = 1", r"unknown table \[colector\]: did you mean collector\?"),
        ("http_port = 1", r"unknown table \[http_port\]"),
        ("collector = 5", r"\[collector\] is a table"),
        ("[collector]\nhttp_port = 'x'", "not a whole number"),
        ("[collector]\nhttp_port = 4318.5", "is float, expected int such as 4318"),
        ("[collector]\nhttp_port = true", "is bool, expected int"),
        ("[collector]\nhttp_port = 70000", "out of range: 0 to 65535"),
        ("[collector]\nqueue_mib = 0", "out of range: 1 to 4096"),
        ("[collector]\nquiet_s = nan", "out of range"),
        ("[collector]\nquiet_s = 'soon'", "not a number"),
        ("[collector]\nhost = 5", "is int, expected str"),
        ("[privacy]\nstore_text = 1", "is int, expected bool"),
        ("[privacy]\nstore_text = 'maybe'", "use true or false"),
        ("[collector\n", "is not TOML"),
        ("\udcff", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "overrun.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=wanted):
        load(path, environment={})


@pytest.mark.parametrize(
    ("variable", "text", "wanted"),
    [
        ("OVERRUN_HTTP_PORT", "http", r"\(environment OVERRUN_HTTP_PORT\) is not a whole number"),
        ("OVERRUN_HTTP_PORT", "-1", "out of range"),
        ("OVERRUN_STORE_TEXT", "perhaps", "use true or false"),
        ("OVERRUN_QUIET_S", "", None),
        ("OVERRUN_STORE_TEXT", "YES", None),
    ],
)
def test_the_environment_is_checked_like_the_file(
    variable: str, text: str, wanted: str | None
) -> None:
    if wanted is None:
        load(None, environment={variable: text})
    else:
        with pytest.raises(ConfigError, match=wanted):
            load(None, environment={variable: text})


def test_a_whole_number_is_a_number_of_seconds(tmp_path: Path) -> None:
    assert (
        load(written(tmp_path, "[collector]\nquiet_s = 3"), environment={}).collector.quiet_s == 3.0
    )


def test_a_file_that_is_not_there_or_is_a_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match="cannot read the settings file"):
            load(path, environment={})


def test_free_tables_are_handed_on(tmp_path: Path) -> None:
    found: Any = load(
        written(tmp_path, '[slo]\ntext = "chat"\n[dashboard]\nport = 1\n'), environment={}
    )
    assert (found.slo, found.dashboard, found.budgets) == ({"text": "chat"}, {"port": 1}, {})
