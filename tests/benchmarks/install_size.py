"""How much does each extra install? Builds the wheel, installs it with each extra into an empty environment, and adds up the files of every package.

    python -m tests.benchmarks.install_size                    # records docs/results/install_size.json
    python -m tests.benchmarks.install_size --extra predict    # prints one

`core` is the wheel without an extra. `router` is what a program needs that only loads a predictor: the extra `predict` without the other dependencies.
pip compiles what it installs, so the sizes hold the compiled files; pip and setuptools themselves are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

from tests.benchmarks import results

ROOT = Path(__file__).parents[2]
SHOWN = 4
NAMES = {
    "core": "the default install (collector, analysis, command line)",
    "router": "a router: onnxruntime and numpy alone",
    **{extra: f"with the extra {extra}" for extra in ("predict", "train", "dashboard", "all")},
}
# Run in the new environment: the size of each package by its own list of files.
SIZES = """
import importlib.metadata, json
sizes = {}
for found in importlib.metadata.distributions():
    if found.metadata["Name"] not in ("pip", "setuptools"):
        sizes[found.metadata["Name"]] = sum(p.stat().st_size for f in found.files or () if (p := f.locate()).is_file())
print(json.dumps(sizes))
"""


def built(folder: Path) -> Path:
    """The wheel, built from this checkout."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = folder.glob("*.whl")
    return wheel


def asked(wheel: Path, extra: str) -> list[str]:
    """What pip is asked to install."""
    if extra == "core":
        return [str(wheel)]
    if extra == "router":
        wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]["predict"]
        return [str(part) for part in wanted]
    return [f"{wheel}[{extra}]"]


def measure(wheel: Path, extra: str) -> dict[str, Any]:
    """Megabytes in all, and of the largest packages."""
    with tempfile.TemporaryDirectory(prefix="overrun-install-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *asked(wheel, extra)], check=True, stderr=subprocess.DEVNULL)
        if extra == "router":
            subprocess.run([*pip, "--no-deps", str(wheel)], check=True, stderr=subprocess.DEVNULL)
            subprocess.run([python, "-c", "import overrun.models.predict"], check=True)
        sizes = json.loads(
            subprocess.run([python, "-c", SIZES], check=True, capture_output=True, text=True).stdout
        )
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:SHOWN]
    return {
        "extra": extra,
        "mb": round(sum(sizes.values()) / 1e6),
        "distributions": len(sizes),
        "packages": [{"name": name, "mb": round(size / 1e6, 1)} for name, size in largest],
    }


def main() -> None:
    """Measure one extra, or all and write them down."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.install_size",
        description="Measure the installed size of each extra.",
    )
    parser.add_argument("--extra", choices=tuple(NAMES))
    extra = parser.parse_args().extra
    with tempfile.TemporaryDirectory(prefix="overrun-wheel-") as folder:
        wheel = built(Path(folder))
        if extra:
            print(json.dumps(measure(wheel, extra), indent=2))
            return
        rows = [measure(wheel, name) for name in NAMES]
    results.record("install_size", [figure(row) for row in rows])
    for row in rows:
        print(f"{row['extra']:10} {row['mb']:>5} MB in {row['distributions']} packages")


def figure(row: dict[str, Any]) -> results.Figure:
    """The figure of what `measure` returned."""
    return results.measured(
        f"Installed size, {NAMES[row['extra']]}",
        row["mb"],
        "MB",
        script="python -m tests.benchmarks.install_size",
        conditions="a new environment, with bytecode caches",
        more={
            "distributions": row["distributions"],
            **{one["name"]: one["mb"] for one in row["packages"]},
        },
    )


if __name__ == "__main__":
    main()
