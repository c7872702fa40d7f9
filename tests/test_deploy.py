"""The files of deploy/ start what is there: settings that load, flags that exist, probes that are routes."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overrun import cli
from overrun.analysis.front import api
from overrun.collector import config
from overrun.collector.config import load
from overrun.collector.store.lake.address import LakeAddress
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())


def test_the_settings_load_and_are_the_same_everywhere() -> None:
    load(DEPLOY / "overrun.toml", environment={})
    both = [(DEPLOY / folder / "overrun.toml").read_bytes() for folder in (".", "kubernetes")]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    "name",
    [
        "Containerfile",
        "compose.yaml",
        "overrun.service",
        "kubernetes/overrun.yaml",
        "kubernetes-lake/lake.yaml",
    ],
)
def test_every_flag_of_serve_is_one(name: str) -> None:
    text = "\n".join(
        line
        for line in (DEPLOY / name).read_text().splitlines()
        if "serve" in line and line.strip()[:1] != "#"
    )
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert flags
    known = CliRunner().invoke(cli.app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    assert {flag for flag in flags if f"{flag} " not in known} == set()


def test_probes_ask_for_routes_that_need_no_token() -> None:
    text = "\n".join(path.read_text() for path in FILES)
    asked = set(re.findall(r"path: (/\w+)|4318(/\w+)", text))
    routes = {route.path for route in api.health_routes(None)}  # type: ignore[arg-type]
    assert {one or other for one, other in asked} == routes


def test_environment_variables_are_settings_or_tokens() -> None:
    known = {"OVERRUN_TOKEN", "OVERRUN_INGEST_TOKEN", "OVERRUN_READ_TOKEN", "OVERRUN_DB"}
    found = {name for path in FILES for name in re.findall(r"OVERRUN_[A-Z_]+", path.read_text())}
    assert found <= known


def test_the_image_installs_versions_that_the_tests_run_with() -> None:
    pinned = [
        {
            line.removesuffix(" \\")
            for line in (ROOT / name).read_text().splitlines()
            if "==" in line and line[0] not in " #"
        }
        for name in ("deploy/requirements.lock", "requirements.lock")
    ]
    assert pinned[0] <= pinned[1]
    assert any(line.startswith("duckdb==") for line in pinned[0])


def test_nothing_runs_as_root_or_writes_its_root() -> None:
    container = (DEPLOY / "Containerfile").read_text()
    assert re.search(r"^USER \d+$", container, re.MULTILINE)
    for name, pods in (("kubernetes/overrun.yaml", 1), ("kubernetes-lake/lake.yaml", 4)):
        text = (DEPLOY / name).read_text()
        for wanted in (
            "runAsNonRoot: true",
            "readOnlyRootFilesystem: true",
            "allowPrivilegeEscalation: false",
        ):
            assert text.count(wanted) == pods
    assert "DynamicUser=yes" in (DEPLOY / "overrun.service").read_text()
    assert Path(DEPLOY / "compose.yaml").read_text().count("read_only: true") == 1


def test_the_roles_of_a_lake_are_those_of_the_program() -> None:
    text = (DEPLOY / "kubernetes-lake" / "lake.yaml").read_text()
    roles = re.findall(r"args: .*--role, (\w+)\]", text)
    assert {*roles, "all"} == {*config._CHOICES["role"]}
    store = re.findall(
        r"STORE=(\S+)", (DEPLOY / "kubernetes-lake" / "kustomization.yaml").read_text()
    )
    [address] = [LakeAddress.read(one) for one in store]
    assert address.data == "s3://bucket/prefix/"
