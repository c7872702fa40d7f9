"""Draw every page, light and dark, on the demo's incident: `make screenshots` writes them to docs/screenshots.

A private server takes in the demo application's run with a slow dependency and the recorded engine overload; the Engine page shows the latter, all
others the former. Pictures are reduced to 128 colours: the whole set stays near two megabytes.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from dashboard import launch, nav
from tests.conftest import ROOT, ServerProcess

OUT = ROOT / "docs" / "screenshots"
WIDTH = 1280
# What each page shows beside the window: a fix that is arithmetic, so that no engine has to be fitted first.
MORE = {"whatif": {"fix": "clip", "p_stage": "retrieval", "p_limit_ms": "300"}}
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


def main() -> None:
    """Write one PNG per page and look; with an argument, only those pages."""
    from playwright.sync_api import sync_playwright

    wanted = sys.argv[1:] or [place.name for place in nav.PLACES]
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "overrun.db")
        shown = None
        try:
            windows = {"app": application(server.http), "engine": recording(server.http)}
            settled(server.http)
            port = launch.pick_port(0)
            artifact = os.environ.get(launch.ARTIFACT_VARIABLE)
            shown = launch.run(server.http, port, artifact=Path(artifact) if artifact else None)
            base = launch.wait_ready(shown, port)
            with sync_playwright() as playwright:
                chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
                browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
                for look in ("light", "dark"):
                    context = browser.new_context(color_scheme=look, viewport={"width": WIDTH, "height": 800})
                    for name in wanted:
                        window = windows["engine" if name == "engine" else "app"] | MORE.get(name, {})
                        draw(context, f"{base}/{'' if name == 'verdict' else name}?{urlencode(window)}", OUT / f"{name}-{look}.png")
                browser.close()
        finally:
            if shown is not None:
                shown.terminate()
                shown.wait(30)
            server.stop()
    print(f"{sum(path.stat().st_size for path in OUT.glob('*.png')) / 1e6:.1f} MB in {OUT}")


def application(base: str) -> dict[str, str]:
    """Run the demo application with a dependency that turns slow half way."""
    start = datetime.now(UTC)
    subprocess.run([sys.executable, "-m", "sample_traces.app.run", "--endpoint", base, "--duration", "40", "--incident", "slow-retrieval"], check=True,
                   capture_output=True, cwd=ROOT)
    return {"from": f"{start:%Y-%m-%dT%H:%M:%SZ}", "to": f"{datetime.now(UTC) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}", "service": "rag-demo"}


def recording(base: str) -> dict[str, str]:
    """Replay the recorded overload of an inference server."""
    done = subprocess.run([sys.executable, "-m", "sample_traces.replay", "--endpoint", base, "--recording", "vllm-spans"], check=True, capture_output=True,
                          text=True, cwd=ROOT)
    import json

    row = json.loads(done.stdout)["recordings"][0]
    return {"from": row["from"], "to": row["to"], "slo": row["slo"], "service": "vllm-server"}


def settled(base: str) -> None:
    """Wait until everything is assembled."""
    deadline = time.monotonic() + 120
    while httpx.get(f"{base}/readyz", trust_env=False, timeout=10).json()["pending_traces"]:
        if time.monotonic() > deadline:
            raise SystemExit("not assembled within two minutes")
        time.sleep(0.2)


def draw(context: Any, url: str, to: Path) -> None:
    """Open a page, make the window as tall as its content, and save it in few colours."""
    from PIL import Image

    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(".ov-box", timeout=60_000)
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=120_000)
    page.wait_for_timeout(2_000)
    height = page.evaluate("document.querySelector('[data-testid=stMainBlockContainer]').getBoundingClientRect().height")
    page.set_viewport_size({"width": WIDTH, "height": int(height) + 70})
    page.wait_for_timeout(800)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(128).save(to, optimize=True)
    page.close()
    print(to.name, picture.size)


if __name__ == "__main__":
    main()
