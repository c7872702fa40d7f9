"""A real Prometheus that holds given samples: promtool writes them as blocks, so that ten minutes of an incident take no ten minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from overrun.dashboard.launch import pick_port
from tests.waiting import LIMIT_S, until

_UNPACKED = Path(sys.prefix) / "prometheus" / "usr" / "bin"
PROMETHEUS, PROMTOOL = (
    shutil.which(name) or shutil.which(_UNPACKED / name) for name in ("prometheus", "promtool")
)


def wanted() -> None:
    """Skip the test where there is no Prometheus, except where CI=true."""
    if PROMETHEUS is None or PROMTOOL is None:
        if os.environ.get("CI") == "true":
            pytest.fail(
                "prometheus is not here: `make test` unpacks it, or apt-get install prometheus"
            )
        pytest.skip("prometheus is not here")


@contextmanager
def holding(folder: Path, pages: Sequence[tuple[float, str, str]]) -> Iterator[str]:
    """The address of a Prometheus that scraped `pages`: (Unix seconds, instance, page)."""
    wanted()
    written, tsdb = folder / "pages.om", folder / "tsdb"
    written.write_text(_openmetrics(pages))
    subprocess.run(
        [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(written), str(tsdb)],
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    config = folder / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    flags = (f"--storage.tsdb.path={tsdb}", "--storage.tsdb.retention.time=36500d")
    with listening(PROMETHEUS, f"--config.file={config}", *flags) as url:
        yield url


@contextmanager
def listening(*command: str | None) -> Iterator[str]:
    """The address of one of Prometheus' programs for as long as the block lasts, from when it is ready."""
    port = pick_port(0)
    process = subprocess.Popen(
        [*map(str, command), f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{url}/-/ready", trust_env=False, verify=False).status_code == 200
        return False

    try:
        until(ready)
        yield url
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def _openmetrics(pages: Sequence[tuple[float, str, str]]) -> str:
    """The pages as one OpenMetrics document with times, a family after the other."""
    families: dict[str, list[str]] = {}
    types: dict[str, str] = {}
    for time_s, instance, page in sorted(pages, key=lambda one: (one[1], one[0])):
        family = ""
        for line in page.splitlines():
            if line.startswith("# TYPE "):
                _, _, family, kind = line.split(" ")
                types[family] = kind
                continue
            if line.startswith("#") or not line:
                continue
            head, value = line.rsplit(" ", 1)
            name, brace, labels = head.partition("{")
            inner = labels.removesuffix("}") if brace else ""
            own = f'instance="{instance}",job="vllm"' + (f",{inner}" if inner else "")
            families.setdefault(family, []).append(f"{name}{{{own}}} {value} {time_s:.3f}")
    out = []
    for family, lines in families.items():
        kind = types[family]
        out.append(
            f"# TYPE {family.removesuffix('_total') if kind == 'counter' else family} {kind}"
        )
        # Samples of one series follow one another.
        out += sorted(lines, key=lambda line: line[: line.index("}")])
    return "\n".join([*out, "# EOF", ""])
