"""Which span or event reports a deployment? The words are in cicd.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TASK: Final = "cicd.pipeline.task.type"
NAMES: Final = ("deployment.name", "deployment.id")


def is_deployment(name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a span or event of this name reports a deployment: a task of that type, a deployment's end, a pipeline's end or an event named so.

    A deployment's name alone is none: it may stand on everything that a program sends.
    """
    if TASK in attributes:
        return str(attributes[TASK]).lower() == "deploy"
    if "deployment.status" in attributes:
        return True
    if "cicd.pipeline.result" in attributes:
        return "deploy" in str(attributes.get("cicd.pipeline.name", name)).lower()
    return "deploy" in name.lower() and any(key in attributes for key in NAMES)
