"""An obvious batching engine: every token of every sequence by itself, one replica. The oracle for the compiled one."""

from dataclasses import dataclass, field

from overrun.analysis.simulator.batching import CHUNK, WHOLE
from overrun.analysis.simulator.engine import Calls, Costs, Setup


@dataclass
class _Sequence:
    row: int
    arrival: float
    prompt: int
    cached: int
    to_come: int
    read: int = 0
    first: float | None = None
    end: float | None = None
    held: int = 0
    number: int = 0
    dropped: int = 0
    preempted: bool = False
    tokens: list[float] = field(default_factory=list)

    @property
    def to_read(self) -> int:
        return max(1, self.prompt - self.cached) - self.read


def run(calls: Calls, setup: Setup, costs: Costs) -> tuple[list[float], list[float], int]:
    """Return (first token, end) of every call in seconds, and how often one was preempted."""
    coming = [
        _Sequence(
            i,
            float(calls.arrival_s[i]),
            int(calls.prompt_tokens[i]),
            int(calls.cached_tokens[i]),
            int(calls.output_tokens[i]),
        )
        for i in range(len(calls))
    ]
    coming.sort(key=lambda s: s.arrival)
    done: list[_Sequence] = []
    waiting: list[_Sequence] = []
    reading: list[_Sequence] = []
    decoding: list[_Sequence] = []
    now, numbers, preempted, written = 0.0, 0, 0, 0
    while coming or waiting or reading or decoding:
        if not (waiting or reading or decoding):
            now = max(now, coming[0].arrival)
        while coming and coming[0].arrival <= now:
            waiting.append(coming.pop(0))
            waiting.sort(key=lambda s: (0, 0.0) if s.preempted else (1, calls.rank[s.row]))

        def used() -> float:
            return sum(s.held for s in [*reading, *decoding])

        def growth() -> int:
            room = max(0, setup.token_budget - (0 if setup.prefill_first else len(decoding)))
            return len(decoding) + (
                0 if setup.reserve == WHOLE else min(room, sum(s.to_read for s in reading))
            )

        full = False
        while (
            len(reading) + len(decoding) > 1
            and used() + growth() + setup.block / 2 * (len(reading) + len(decoding))
            > setup.kv_tokens
        ):
            newest = max([*reading, *decoding], key=lambda s: s.number)
            if not setup.resumes:
                newest.read = 0
            elif newest in decoding:
                newest.read = newest.prompt - newest.cached
            (reading if newest in reading else decoding).remove(newest)
            newest.held, newest.dropped, newest.preempted = 0, written, True
            waiting.insert(0, newest)
            preempted += 1
            full = True
        budget = setup.token_budget - (0 if setup.prefill_first else len(decoding))
        chunks: list[tuple[_Sequence, int]] = []
        for sequence in reading:
            chunk = min(sequence.to_read, budget)
            if chunk > 0:
                chunks.append((sequence, chunk))
                budget -= chunk
                sequence.held += 0 if setup.reserve == WHOLE else chunk
        while (
            not full
            and waiting
            and budget > 0
            and len(reading) + len(decoding) < setup.max_sequences
        ):
            sequence, taken = waiting[0], len(reading) + len(decoding)
            if setup.resumes and sequence.preempted:
                # What others have written since lies over the end of what it had computed; one token is computed anew at least.
                sequence.read = min(
                    max(0, sequence.read - (written - sequence.dropped)),
                    sequence.prompt - sequence.cached - 1,
                )
                sequence.dropped = written
            chunk = sequence.to_read if setup.prefill_first else min(sequence.to_read, budget)
            found, all_of_it = sequence.read + chunk, sequence.read + sequence.to_read
            if (
                taken
                and used()
                + (found if setup.reserve == CHUNK else all_of_it)
                + setup.block / 2 * (taken + 1)
                > setup.kv_tokens
            ):
                break
            if setup.prefill_first and chunks and sequence.to_read > budget:
                break
            waiting.pop(0)
            numbers += 1
            sequence.number, sequence.held = numbers, all_of_it if setup.reserve == WHOLE else found
            chunks.append((sequence, chunk))
            budget -= chunk
            reading.append(sequence)
        batch = [] if setup.prefill_first and chunks else list(decoding)
        tokens = sum(chunk for _, chunk in chunks)
        work = sum(chunk * (s.prompt - s.to_read + chunk / 2) for s, chunk in chunks)
        context = sum(s.prompt for s in batch)
        compute, memory = (
            costs.prefill_token * (tokens + len(batch)) + costs.attention * work,
            costs.step + costs.kv_token * context,
        )
        written += tokens + len(batch)
        now += (
            max(compute, memory)
            + costs.overlap * min(compute, memory)
            + costs.sequence * (len(batch) + len(reading))
        )
        for sequence, chunk in chunks:
            sequence.read += chunk
        for sequence in batch:
            sequence.held += 1
            sequence.prompt += 1
            sequence.to_come -= 1
        for sequence in [s for s in reading if s.to_read == 0]:
            reading.remove(sequence)
            sequence.first = now if sequence.first is None else sequence.first
            sequence.to_come -= 1
            decoding.append(sequence)
        for sequence in [s for s in decoding if s.to_come <= 0]:
            decoding.remove(sequence)
            sequence.end = now
            done.append(sequence)
    done.sort(key=lambda s: s.row)
    return [s.first or 0.0 for s in done], [s.end or 0.0 for s in done], preempted
