"""Which attributes does a vocabulary know, and which texts of unknown ones are words of an enumeration? For `[privacy] attributes = "known"`.

A key is known where a vocabulary (dialects/) reads it, or where it stands in a namespace of the OpenTelemetry conventions or of a known sender, outside of what
senders hand on for their users (`langfuse.trace.metadata.`). Under any other key numbers and flags are kept, and words of which there are few.
"""

from __future__ import annotations

import re

from overrun.collector.normalise import stages
from overrun.collector.normalise.stages import derived, dialects, fold

# Namespaces of OpenTelemetry's registry of attributes (semantic conventions 1.38) that services, their platforms and model calls use, and what exporters add.
_NAMES = (
    "app artifact aspnetcore aws azure browser cassandra cicd client cloud cloudevents cloudfoundry code container cpu cpython db deployment destination"
    " device dns dotnet elasticsearch enduser error event exception faas feature_flag file gcp gen_ai geo go graphql heroku host http hw jvm k8s linux llm"
    " log mainframe mcp messaging net network nodejs oci openai opentracing os otel peer pool process profile rpc server service session signalr source"
    " span sql system telemetry test thread tls url user_agent v8js vcs webengine zos overrun"
)
_NAMESPACES = tuple(f"{name}." for name in _NAMES.split())
# What senders hand on for their users, wherever it stands in a key.
_HANDED_ON = frozenset(
    {
        "metadata",
        "properties",
        "tags",
        "tag",
        "labels",
        "label",
        "custom",
        "extra",
        "annotations",
        "attributes",
    }
)
_SEPARATORS = re.compile(r"[._\-:/\[\] ]+")
# One word as programs spell the values of an enumeration.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/+-]{0,31}")
_NUMBER = re.compile(r"[+-]?\d{1,6}(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
# So many different words of one key are an enumeration, and for so many keys that is counted (2 MB at most).
MOST_WORDS, MOST_KEYS = 24, 1_000


@derived
def is_known(key: str) -> bool:
    """Whether a vocabulary knows what stands under this key."""
    spelled = fold(key).lower()
    if spelled in _read():
        return True
    if not _HANDED_ON.isdisjoint(_SEPARATORS.split(key.lower())):
        return False
    return key.startswith(_NAMESPACES) or key.startswith(_prefixes())


@derived
def _read() -> frozenset[str]:
    keys = [
        *(f.key for d in dialects() for f in d.fields),
        *(f.key for d in dialects() for f in d.event_fields),
        *(mark.key for d in dialects() for mark in d.marks),
        *(f.beside for d in dialects() for f in d.fields if f.beside),
        *(mark.beside for d in dialects() for mark in d.marks if mark.beside),
        *(key for d in dialects() for key, _ in d.failures),
        *(key for d in dialects() for key in (*d.answers, *d.model_labels)),
        *(key for d in dialects() for stored in d.stored_answers for key, _, _ in stored),
        *(key for d in dialects() for m in d.metrics for key in (*dict(m.where), *m.labels)),
        *(key for key, _ in stages.HTTP_KEYS),
        *stages.URL_KEYS,
        *stages.MESSAGING_KEYS,
    ]
    return frozenset(fold(key).lower() for key in keys)


@derived
def _prefixes() -> tuple[str, ...]:
    return tuple(p for d in dialects() for p in d.prefixes if p.endswith((".", "_", ":")))


class Enumerations:
    """The words seen under unknown keys, for as long as there are few of each. Of one thread."""

    def __init__(self) -> None:
        self._words: dict[str, set[str] | None] = {}

    def keeps(self, key: str, text: str) -> bool:
        """Whether a text under an unknown key is a number or a word of an enumeration; from too many different words on, no word of that key is."""
        if _NUMBER.fullmatch(text):
            return True
        if _WORD.fullmatch(text) is None:
            return False
        words = (
            self._words.get(key, set()) if len(self._words) < MOST_KEYS else self._words.get(key)
        )
        if words is None:
            return False
        words.add(text)
        self._words[key] = words if len(words) <= MOST_WORDS else None
        return len(words) <= MOST_WORDS
