"""The routing strategy inside the real LiteLLM, with mock backends. LiteLLM has an environment of its own, made by `make test`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.routers import litellm_artifact

PYTHON = Path(sys.prefix) / "litellm" / "bin" / "python"
ROOT = Path(__file__).parents[2]


def test_short_requests_avoid_the_backend_that_is_busy_with_a_long_one(tmp_path: Path) -> None:
    if not PYTHON.exists():
        if os.environ.get("CI"):
            pytest.fail(
                f"{PYTHON} is not there: `make test` installs requirements-litellm.lock for it"
            )
        pytest.skip("LiteLLM is not installed: `make check-litellm` installs it apart")
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": str(ROOT)}
    litellm_artifact.write(tmp_path / "a")
    command = [str(PYTHON), "-m", "tests.routers.litellm_check", str(tmp_path / "a")]
    checked = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr[-2_000:]
    assert "routes by predicted length" in checked.stdout
