"""Saved pages are dated by what tells when they were read; copies that share a moment are refused with the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overrun import cli
from overrun.collector.errors import ImportFailed
from overrun.collector.sources.page_times import engines_of, page_times

S = 1_000_000_000
T0 = 1_795_640_000


def pages(
    folder: Path,
    names: list[str],
    times_s: list[float],
    text: str = "vllm:num_requests_running 1\n",
) -> list[Path]:
    folder.mkdir(exist_ok=True)
    out = []
    for name, time_s in zip(names, times_s, strict=True):
        path = folder / name
        path.write_text(text)
        os.utime(path, ns=(int(time_s * S), int(time_s * S)))
        out.append(path)
    return out


NAMES = ["000.prom", "001.prom", "002.prom"]


def test_files_have_the_times_at_which_they_were_written(tmp_path: Path) -> None:
    found = page_times(pages(tmp_path / "a", NAMES, [T0, T0 + 15, T0 + 30]), None, lambda _: False)
    assert list(found.values()) == [T0 * S, (T0 + 15) * S, (T0 + 30) * S]


@pytest.mark.parametrize(
    "times",
    [[T0, T0, T0], [T0, T0 + 0.001, T0 + 0.002], [T0, T0, T0 + 15], [T0 + 0.01, T0, T0 + 0.02]],
)
def test_copies_of_one_moment_are_refused(tmp_path: Path, times: list[float]) -> None:
    with pytest.raises(
        ImportFailed, match=r"3 pages in gpu0 all have the same file time .*--every 15s"
    ):
        page_times(pages(tmp_path / "gpu0", NAMES, times), None, lambda _: False)


def test_pages_of_different_engines_may_be_of_one_moment(tmp_path: Path) -> None:
    found = page_times(
        [pages(tmp_path / engine, ["page.prom"], [T0])[0] for engine in "ab"], None, lambda _: False
    )
    assert set(found.values()) == {T0 * S}


def test_samples_that_say_their_times_need_no_files_times(tmp_path: Path) -> None:
    assert len(page_times(pages(tmp_path / "a", NAMES, [T0, T0, T0]), None, lambda _: True)) == 3


def test_every_counts_back_from_the_last(tmp_path: Path) -> None:
    found = page_times(pages(tmp_path / "a", NAMES, [T0, T0, T0]), 15.0, lambda _: False)
    assert list(found.values()) == [(T0 - 30) * S, (T0 - 15) * S, T0 * S]


@pytest.mark.parametrize(
    "names",
    [
        [f"{T0}.prom", f"{T0 + 15}.prom"],
        [f"metrics_{T0}000.prom", f"metrics_{T0 + 15}000.prom.gz"],
        ["20261125T205320Z.prom", "20261125T205335Z.prom"],
        ["gpu0-2026-11-25T20:53:20.prom", "gpu0-2026-11-25T20:53:35.prom"],
        ["2026-11-25_20-53-20.prom", "2026-11-25_20-53-35.prom"],
    ],
)
def test_names_may_say_the_time(tmp_path: Path, names: list[str]) -> None:
    found = page_times(pages(tmp_path / "a", names, [5.0, 5.0]), None, lambda _: False)
    assert list(found.values()) == [T0 * S, (T0 + 15) * S]


def test_the_command_names_the_remedy_and_takes_it(tmp_path: Path) -> None:
    folder = tmp_path / "gpu0"
    pages(folder, NAMES, [T0, T0, T0])
    refused = CliRunner().invoke(cli.app, ["import", "--db", str(tmp_path / "a.db"), str(folder)])
    assert refused.exit_code == 2
    assert "--every 15s" in refused.stderr
    done = CliRunner().invoke(
        cli.app, ["import", "--db", str(tmp_path / "a.db"), "--every", "15s", str(folder)]
    )
    assert (done.exit_code, "3 spans and data points stored" in done.stdout) == (0, True)
    wrong = CliRunner().invoke(
        cli.app, ["import", "--db", str(tmp_path / "a.db"), "--every", "often", str(folder)]
    )
    assert (wrong.exit_code, "is no duration" in wrong.stderr) == (2, True)


def test_federated_pages_are_dated_by_their_samples(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    for at, path in enumerate(pages(folder, NAMES, [T0, T0, T0])):
        path.write_text(
            f'vllm:num_requests_running{{instance="gpu-0"}} 1 {1000 * (T0 + 15 * at)}\n'
        )
        os.utime(path, (T0, T0))
    done = CliRunner().invoke(cli.app, ["import", "--db", str(tmp_path / "a.db"), str(folder)])
    assert (done.exit_code, "3 spans and data points stored" in done.stdout) == (0, True)


def test_pages_of_several_engines_in_one_folder_are_told_apart_by_name(tmp_path: Path) -> None:
    """Words that begin with a letter name the engine; where each page has its own, or none, the folder is the engine."""

    def named(*names: str) -> dict[str, str]:
        paths = [tmp_path / name for name in names]
        return {path.name: name for path, name in engines_of(paths).items()}

    two = named("gpu0-001.prom", "gpu1-001.prom", "gpu0-002.prom", "gpu1-002.prom")
    assert {name.partition("/")[2] for name in two.values()} == {"gpu0", "gpu1"}
    assert named("001.prom", "002.prom", "003.prom", "004.prom") == {}
    assert named("page1.prom", "page2.prom", "page3.prom") == {}
    assert named("2026-11-20T10-00-00.prom", "2026-11-20T10-00-15.prom") == {}
    assert named("vllm-1795168800.prom", "vllm-1795168815.prom") == {}
