"""Do the engines know the flags of their pages? `python -m tests.integrations.flags [--environment .venv/lab]`.

vLLM's own parser reads its line, llama.cpp's server is asked for its help (both of `make lab`), and of SGLang and Dynamo, which do not run without a GPU, the
released wheels are searched for the flags. What is not here is said and is no failure.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.integrations import pages

ROOT: Final = Path(__file__).parents[2]
_VLLM: Final = """
import sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])
"""
# The package of a page, and what its flags look like in its source: as they are written, or as the fields that they are made of.
_WHEELS: Final = {"sglang": ("sglang", r"\b{field}: "), "dynamo": ("ai-dynamo", r"\"{flag}\"")}


def line_of(name: str) -> list[str]:
    """The words of the line that starts the engine."""
    own = ("overrun ", "pip ")
    line = next(line for line in pages.read(name).commands if not line.startswith(own))
    return shlex.split(line.removesuffix("&"))


def flags_of(name: str) -> list[str]:
    """The flags of that line."""
    return [word.partition("=")[0] for word in line_of(name) if word.startswith("--")]


def by_vllm(environment: Path) -> str:
    """What vLLM's parser says of its line."""
    python, words = environment / "bin" / "python", line_of("vllm")
    if not python.exists():
        return "not here: make lab"
    done = subprocess.run(
        [str(python), "-c", _VLLM, *words[words.index("serve") + 1 :]],
        env={"VLLM_TARGET_DEVICE": "cpu", "HOME": tempfile.gettempdir(), "PATH": "/usr/bin:/bin"},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return "read" if done.returncode == 0 else f"WRONG: {done.stderr[-500:]}"


def by_llama(environment: Path) -> str:
    """Which flags llama.cpp's server does not list."""
    server = environment / "bin" / "llama-server"
    if not server.exists():
        return "not here: make lab-llama"
    told = subprocess.run([str(server), "--help"], capture_output=True, text=True, check=True)
    missing = [flag for flag in flags_of("llama-cpp") if flag not in told.stdout]
    return f"WRONG: no {missing}" if missing else "listed"


def by_wheel(name: str) -> str:
    """Which flags the released wheel does not have."""
    package, form = _WHEELS[name]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
        done = subprocess.run([*command, package], capture_output=True, check=False, timeout=300)
        wheel = next(Path(folder).glob("*.whl"), None)
        if done.returncode or wheel is None:
            return "not here: its wheel cannot be had"
        with zipfile.ZipFile(wheel) as packed:
            files = [file for file in packed.namelist() if re.search(r"arg|launch", file)]
            text = "\n".join(packed.read(file).decode(errors="ignore") for file in files)
    missing = [
        flag
        for flag in flags_of(name)
        if not re.search(form.format(flag=flag, field=flag.strip("-").replace("-", "_")), text)
    ]
    return f"WRONG: no {missing} in {wheel.name}" if missing else f"in {wheel.name}"


def main() -> int:
    """Print a line per engine; 1 if one does not know a flag."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv" / "lab")
    environment = parser.parse_args().environment.absolute()
    said = {"vllm": by_vllm(environment), "llama-cpp": by_llama(environment)}
    said |= {name: by_wheel(name) for name in _WHEELS}
    for name, text in said.items():
        print(f"{name}: {' '.join(flags_of(name))}: {text}")
    return int(any(text.startswith("WRONG") for text in said.values()))


if __name__ == "__main__":
    sys.exit(main())
