"""Draw every page, light, dark and the first screen of a phone, on a simulated incident: `make screenshots` writes them to docs/screenshots.

A private server takes in ten simulated minutes, the same ones every time and on every machine. Pictures are reduced to 256 colours, which keeps the set
small; the Length page shows a predictor that is trained on them.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
from PIL import Image

from overrun.analysis.words.finding import SIMULATING
from overrun.dashboard import launch, nav
from tests.conftest import ROOT, ServerProcess

OUT = ROOT / "docs" / "screenshots"
WIDTH, PHONE = 1280, 390
# The first screen of a phone; the rest is found by scrolling.
PHONE_HEIGHT = 844
# Of a picture's 256 colours, so many are its most frequent ones.
FREQUENT = 224
# What each page shows beside the window: a fix that is arithmetic, so that no engine has to be fitted first.
MORE = {
    "whatif": {
        "fix": "clip",
        "p_stage": "prefill",
        "p_limit_ms": "300",
        "also": "clip(stage=retrieval,limit_ms=50)|clip(stage=decode,limit_ms=2000)",
    }
}
# A busy machine is no failure.
PATIENCE_S = 600
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main() -> None:
    """Write one PNG per page and look; with an argument, only those pages."""
    from playwright.sync_api import sync_playwright

    wanted = sys.argv[1:] or [place.name for place in nav.PLACES]
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "overrun.db")
        shown = None
        try:
            window = incident(server.http, Path(folder) / "incident")
            settled(server.http)
            simulated(server.http, window)
            port = launch.pick_port(0)
            artifact = Path(folder) / "artifact" if "length" in wanted else None
            if artifact is not None:
                train = ["train", "--url", server.http, "--out", str(artifact)]
                command = [sys.executable, "-m", "overrun", *train]
                subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
            shown = launch.run(server.http, port, artifact=artifact)
            base = launch.wait_ready(shown, port)
            with sync_playwright() as playwright:
                chromium = (
                    shutil.which("chromium")
                    or shutil.which("chromium-browser")
                    or shutil.which("google-chrome")
                )
                browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
                for look, width in (("light", WIDTH), ("dark", WIDTH), ("light", PHONE)):
                    context = browser.new_context(
                        color_scheme=look, viewport={"width": width, "height": PHONE_HEIGHT}
                    )
                    for name in wanted:
                        query = urlencode(window | MORE.get(name, {}))
                        draw(
                            context,
                            f"{base}/{'' if name == 'verdict' else name}?{query}",
                            OUT / f"{name}-{look if width == WIDTH else 'phone'}.png",
                            whole=width == WIDTH,
                        )
                browser.close()
        finally:
            if shown is not None:
                shown.terminate()
                shown.wait(30)
            server.stop()
    print(f"{sum(path.stat().st_size for path in OUT.glob('*.png')) / 1e6:.1f} MB in {OUT}")


def incident(base: str, folder: Path) -> dict[str, str]:
    """Send ten simulated minutes in which an application loses its prefix cache half way; returns the window."""
    scenario = [
        "prefix_cache_lost",
        "--severity",
        "easy",
        "--seed",
        "7",
        "--no-fixes",
        "--no-confounders",
        "--out",
        str(folder),
    ]
    subprocess.run(
        [sys.executable, "-m", "overrun.sample_traces.simulate", *scenario],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    subprocess.run(
        [sys.executable, "-m", "overrun", "import", str(folder), "--url", base],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    truth = json.loads((folder / "truth.json").read_text())
    return {"from": truth["start"], "to": truth["end"], "slo": "ttft:800 e2el:6000"}


def settled(base: str) -> None:
    """Wait until everything is assembled."""
    deadline = time.monotonic() + PATIENCE_S
    while httpx.get(f"{base}/readyz", trust_env=False, timeout=10).json()["pending_traces"]:
        if time.monotonic() > deadline:
            raise SystemExit(f"not assembled within {PATIENCE_S} s")
        time.sleep(0.2)


def simulated(base: str, window: dict[str, str]) -> None:
    """Wait until fixes are simulated, so that light and dark say the same."""
    deadline = time.monotonic() + PATIENCE_S
    while (
        SIMULATING
        in httpx.get(
            f"{base}/api/v1/report", params=window, trust_env=False, timeout=PATIENCE_S
        ).text
    ):
        if time.monotonic() > deadline:
            raise SystemExit(f"not simulated within {PATIENCE_S} s")
        time.sleep(0.5)


def draw(context: Any, url: str, to: Path, *, whole: bool) -> None:
    """Open a page, make the window as tall as its content where the `whole` is wanted, and save it in few colours."""
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(".ov-box", timeout=1000 * PATIENCE_S)
    page.wait_for_selector(
        '[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=1000 * PATIENCE_S
    )
    page.wait_for_timeout(2_000)
    if whole:
        height = page.evaluate(
            "document.querySelector('[data-testid=stMainBlockContainer]').getBoundingClientRect().height"
        )
        page.set_viewport_size({"width": WIDTH, "height": int(height) + 70})
        page.wait_for_timeout(800)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    in_few_colours(np.asarray(picture)).save(to, optimize=True)
    page.close()
    print(to.name, picture.size)


def in_few_colours(pixels: np.ndarray) -> Image.Image:
    """The picture in 256 colours: the most frequent ones, so that no surface changes its tint, then those that miss the most by them, so that a short bar
    keeps the colour of its stage; every other pixel (the edges of letters) has the nearest."""
    packed = pixels.astype(np.int64) @ np.array([65536, 256, 1])
    colours, place, count = np.unique(packed, return_inverse=True, return_counts=True)
    parts = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1)
    off, nearest, kept = (
        np.full(len(colours), np.iinfo(np.int64).max),
        np.zeros(len(colours), np.int64),
        [],
    )
    while len(kept) < min(256, len(colours)):
        chosen = int(np.argmax(count * (off > 0) if len(kept) < FREQUENT else count * off))
        distance = ((parts - parts[chosen]) ** 2).sum(axis=1)
        nearest[distance < off] = len(kept)
        off = np.minimum(off, distance)
        kept.append(chosen)
    picture = Image.fromarray(nearest[place].reshape(pixels.shape[:2]).astype(np.uint8), mode="P")
    picture.putpalette(parts[kept].astype(np.uint8).tobytes())
    return picture


if __name__ == "__main__":
    main()
