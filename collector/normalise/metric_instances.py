"""Which engine does each data point speak of? A page or an OTLP resource may hold several: federated ones, data-parallel ranks, replicas of a node.

The labels decide: `instance` names the engine (a federating Prometheus keeps it), and `engine` (vLLM, LMDeploy), `dp_rank` (SGLang) or `ReplicaId` (Ray Serve)
one of several behind the same address. Read as one they would look like a single engine with the seats of all.
"""

from __future__ import annotations

from typing import Any

from overrun.collector.normalise.spans import MAX_NAME

# Who names the engine itself, the first that is there; `exported_` is what a Prometheus makes of a label that it sets itself.
_NAMES = ("exported_instance", "instance")
# A part's label -> what stands before it in the name, and whether it is used even if a body holds one part alone. Ranks are numbers: `engine="vllm"` is none.
_RANKS = (("engine", "engine "), ("dp_rank", "rank "))
_REPLICAS = ("ReplicaId", "exported_pod", "pod", "pod_name", "server", "replica", "WorkerId")
# Always there on the pages that have it (one per node), however many replicas the node holds just now.
_ALWAYS = ("ReplicaId",)
# What an exporter of GPUs says of pods is who uses the GPU, not who speaks.
_OTHERS = "dcgm"


class Instances:
    """Names of engine instances, by the labels of their points."""

    @staticmethod
    def name(rows: list[dict[str, Any]]) -> None:
        """Put the engine's name into `instance` of the rows of one sender. In place; takes away their `labels`."""
        told = [
            row
            for row in rows
            if row["indicator"] is not None and not row["name"].lower().startswith(_OTHERS)
        ]
        several = {key: _values(told, key) for key in (*(key for key, _ in _RANKS), *_REPLICAS)}
        for row in rows:
            labels = row.pop("labels")
            named = next(
                (text for key in _NAMES if (text := _text(labels.get(key)))), row["instance"]
            )
            if not row["name"].lower().startswith(_OTHERS):
                named = _part(named, labels, several)
            row["instance"] = named[:MAX_NAME] if named else None


def _part(named: str | None, labels: dict[str, Any], several: dict[str, set[str]]) -> str | None:
    replica = next(
        (
            text
            for key in _REPLICAS
            if (text := _text(labels.get(key))) and (key in _ALWAYS or len(several[key]) > 1)
        ),
        None,
    )
    if replica is not None and replica != named:
        named = f"{named}/{replica}" if named else replica
    for key, what in _RANKS:
        rank = _text(labels.get(key))
        if rank is not None and rank.isdecimal() and (len(several[key]) > 1 or rank != "0"):
            return f"{named}/{what}{rank}" if named else f"{what}{rank}"
    return named


def _values(rows: list[dict[str, Any]], key: str) -> set[str]:
    return {text for row in rows if (text := _text(row["labels"].get(key)))}


def _text(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None
