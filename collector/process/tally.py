"""How often did it happen? Labelled counters of this process, and their Prometheus text. Safe from any thread."""

from __future__ import annotations

import threading
from collections import Counter

_HELP = {
    "refused_requests": "Requests that were answered with an error, by protocol, signal and reason.",
    "alert_messages": "Messages of alerts: delivered, failed for now, dropped.",
    "alert_evaluations_failed": "Evaluations of alerts that ended with an error.",
    "cut": "What a limit cut or put together: attributes over the count, keys and values over the length, values over the depth, new sources and shapes over their rate.",
}


class Tally:
    """Counters by name and labels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def count(self, name: str, by: int = 1, /, **labels: str) -> None:
        """Add to one counter. Labels are words of ours, never text from outside."""
        if by:
            with self._lock:
                self._counts[name, tuple(labels.items())] += by

    def value(self, name: str, /, **labels: str) -> int:
        """The sum of a counter over every set of labels that has these."""
        with self._lock:
            return sum(
                n
                for (known, have), n in self._counts.items()
                if known == name and labels.items() <= dict(have).items()
            )

    def by_label(self, name: str, label: str, /) -> dict[str, int]:
        """A counter for each value of one label."""
        out: Counter[str] = Counter()
        with self._lock:
            for (known, labels), n in self._counts.items():
                if known == name:
                    out[dict(labels).get(label, "")] += n
        return dict(out)

    def lines(self) -> list[str]:
        """Prometheus text, one family per name."""
        with self._lock:
            counts = sorted(self._counts.items())
        out: list[str] = []
        last = ""
        for (name, labels), n in counts:
            if name != last:
                out += [
                    f"# HELP overrun_{name}_total {_HELP.get(name, name)}",
                    f"# TYPE overrun_{name}_total counter",
                ]
                last = name
            shown = ",".join(f'{key}="{value}"' for key, value in labels)
            out.append(
                f"overrun_{name}_total{{{shown}}} {n}" if shown else f"overrun_{name}_total {n}"
            )
        return out
