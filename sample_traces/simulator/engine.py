"""How long does an inference server take? Continuous batching of one replica: iterations, chunked prefill, KV blocks, preemption, prefix cache.

An iteration gives each decoding sequence one token (or one draft's worth) and spends what is left of the token budget on prompts. While
nothing but decoding goes on, many iterations are one event, so the cost of a simulation follows its requests and not its tokens.

The cost law is a smooth roofline: (compute^3 + memory^3)^(1/3) + host time, compute growing a little slower than the tokens of the
iteration, the batch padded to eights, noise on every event, and now and then a stall that nothing explains.
"""

from __future__ import annotations

import bisect
import heapq
import math
import random
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from overrun.sample_traces.simulator.clock import Clock, Signal
from overrun.sample_traces.simulator.settings import Settings

# Chosen so that an 8 B model on one mid-range accelerator comes out: 9 k prompt tokens/s, 13 ms a token at batch 8, 28 ms at batch 64.
_TOKEN_S: Final = 1.35e-4
_TOKEN_POWER: Final = 0.97
_ATTENTION_S: Final = 2.0e-9
_WEIGHTS_S: Final = 9.5e-3
_KV_S: Final = 1.1e-7
_HOST_S: Final = 1.2e-3
_SEQUENCE_S: Final = 5.0e-5
_NOISE: Final = 0.04
_STALL_SHARE: Final = 0.002
_STALL_S: Final = 0.025
# A draft model's own pass per proposed token, as a share of an iteration, and what verifying adds.
_DRAFT_COST: Final = 0.055
# Launching kernels one by one, of a model of some 36 layers.
_EAGER_S: Final = 0.016
_BLOCK: Final = 16
_LONGEST_EVENT: Final = 64
# Begins the names under which is kept what preempted sequences had computed.
_PREEMPTED: Final = "preempted/"


@dataclass(slots=True, eq=False)
class Sequence:
    """One request in an engine. `prefix` names the parts of the prompt's head that others may share, with their tokens."""

    input_tokens: int
    output_tokens: int
    max_tokens: int
    prefix: tuple[tuple[str, int], ...]
    keep: str
    """Under which name the whole context is kept when it ends, for the session's next turn; empty: not at all."""
    first: Signal
    done: Signal
    arrived: float
    queued: float = 0.0
    scheduled: float = -1.0
    first_token: float = -1.0
    finished: float = -1.0
    cached: int = 0
    preemptions: int = 0
    admitted: int = 0  # its place in the order of admission
    left: int = 0  # prompt tokens still to compute
    made: int = 0
    own: int = 0  # KV tokens of its own
    shared: list[str] = field(default_factory=list)
    again: str = ""  # under which name is kept what it had computed when it was preempted, and the token with which that begins
    again_from: int = 0
    finish_step: int = 0
    joined_step: int = 0
    aborted: bool = False
    spans: list[tuple[int, int]] = field(
        default_factory=list
    )  # (step at which decoding began, tokens decoded from there)
    request_id: str = ""


@dataclass(slots=True)
class Counters:
    """What the engine counts, cumulatively, as its metrics will tell it."""

    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0})
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: float = 0.0
    iterations: list[tuple[float, int]] = field(
        default_factory=list
    )  # (tokens, how many iterations) since the last scrape
    gaps: list[tuple[float, int]] = field(
        default_factory=list
    )  # (seconds, tokens) since the last scrape


class Engine:
    """One replica."""

    def __init__(
        self, clock: Clock, settings: Settings, index: int, seed: int, dice: int = 0
    ) -> None:
        self.clock, self.settings, self.index = clock, settings, index
        self.dice = random.Random(f"engine/{seed}/{index}" + (f"/{dice}" if dice else ""))
        self.waiting: deque[Sequence] = deque()
        self.prefilling: list[Sequence] = []
        self.decoding: set[Sequence] = set()
        self._finishing: list[tuple[int, int, Sequence]] = []
        self.cache: OrderedDict[str, int] = OrderedDict()
        self._holders: dict[str, int] = {}
        self.step = 0
        self.kv_own = 0
        self.kv_cache = 0
        self._context = 0  # tokens that the decoding sequences attend to
        self._stalled_s = 0.0
        self.ended: list[Sequence] = []
        self.counters = Counters()
        self.steps: list[
            tuple[int, float, float]
        ] = []  # (first step, its start, seconds a step) of every event that decoded
        self.born = 0.0
        self._busy = False
        self._event = 0
        self._block: tuple[float, float, int] | None = (
            None  # start, seconds a step, steps of a pure decoding event
        )
        self._tie = 0
        self._admitted = 0

    # --- what the outside sees ---

    @property
    def load(self) -> int:
        """Requests inside."""
        return len(self.waiting) + len(self.prefilling) + len(self.decoding)

    @property
    def kv_usage(self) -> float:
        """Share (0..1) of the blocks that running sequences hold."""
        held = sum(
            self.cache[name] for name, n in self._holders.items() if n and name in self.cache
        )
        return min(
            1.0, (self.kv_own + held + _BLOCK // 2 * self._running) / self.settings.kv_tokens
        )

    @property
    def _running(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    def submit(self, sequence: Sequence) -> None:
        """Take a request: it has been tokenised and is queued at this moment."""
        sequence.queued = self.clock.now
        sequence.left = sequence.input_tokens
        self.waiting.append(sequence)
        self._disturb()

    def cancel(self, sequence: Sequence) -> None:
        """The client is gone: free what the request holds."""
        if sequence.finished >= 0.0 or sequence.aborted:
            return
        sequence.aborted = True
        self.counters.finished["abort"] += 1
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif sequence in self.prefilling:
            self.prefilling.remove(sequence)
            self._release(sequence)
        elif sequence in self.decoding:
            self._tally(sequence)
            self.decoding.discard(sequence)
            self._release(sequence)
        self._disturb()

    def reconfigure(self, settings: Settings) -> None:
        """Other flags from now on; what runs goes on."""
        self.settings = settings
        self._disturb()

    # --- iterations ---

    def _disturb(self) -> None:
        """Something came or went: an idle engine starts, a long decoding event ends at its next token."""
        if not self._busy:
            self._busy = True
            self._event += 1
            self.clock.at(self.clock.now, self._next, self._event)
            return
        if self._block is not None:
            start, step_s, steps = self._block
            done = min(steps, int((self.clock.now - start) / step_s) + 1)
            if done < steps:
                self._event += 1
                self._block = (start, step_s, done)
                self.clock.at(start + done * step_s, self._end_decoding, self._event)

    def _next(self, event: int) -> None:
        if event != self._event:
            return
        self._block = None
        if not self._make_room():
            self._admit()
        if not self._running:
            self.kv_own = self._context = (
                0  # tokens of a draft's step are fractions, and their rounding adds up
            )
            self._busy = bool(self.waiting) and self._force()
            if not self._busy:
                return
        if self.prefilling:
            self._mixed()
        else:
            self._decode()

    def _force(self) -> bool:
        """An empty engine that cannot admit its first request clears its cache; a prompt that still does not fit is run alone."""
        while self.cache:
            _, tokens = self.cache.popitem(last=False)
            self.kv_cache -= tokens
        sequence = self.waiting.popleft()
        self._begin(sequence, self._take_prefix(sequence))
        return True

    def _admit(self) -> None:
        """First come, first served, as long as what is free holds the whole prompt beside what those inside are about to write."""
        while self.waiting and self._running < self.settings.max_num_seqs:
            sequence = self.waiting[0]
            hit = self._take_prefix(sequence)
            if not self._room(self._grown() + self._promised() + sequence.left - hit + 4 * _BLOCK):
                self._let_go(sequence)
                return
            self.waiting.popleft()
            self._begin(sequence, hit)

    def _begin(self, sequence: Sequence, hit: int) -> None:
        if sequence.scheduled < 0.0:
            sequence.scheduled, sequence.cached = self.clock.now, hit
            self.counters.prompt_tokens += sequence.input_tokens
            self.counters.prefix_queries += sequence.left
            self.counters.prefix_hits += hit
        self._admitted += 1
        sequence.admitted = self._admitted
        sequence.left = max(1, sequence.left - hit)
        if sequence.again in sequence.shared:
            self._take_back(sequence, hit)
        self.prefilling.append(sequence)

    def _mixed(self) -> None:
        """One iteration that computes prompts: beside the decoding sequences, or instead of them where chunking is off."""
        s = self.settings
        decoding = len(self.decoding) if s.chunked else 0
        room = max(_BLOCK, s.token_budget - decoding)
        chunks: list[tuple[Sequence, int]] = []
        prompt_tokens, attention = 0, 0.0
        for sequence in self.prefilling:
            # Without chunking a prompt is computed whole, and others join while they fit the budget.
            chunk = min(sequence.left, room) if s.chunked else sequence.left
            if chunk <= 0 or (not s.chunked and chunks and prompt_tokens + chunk > s.token_budget):
                break
            done = sequence.input_tokens + sequence.made - sequence.left
            attention += chunk * (done + chunk / 2)
            prompt_tokens += chunk
            room -= chunk
            chunks.append((sequence, chunk))
            if s.chunked and room <= 0:
                break
        seconds = self._seconds(prompt_tokens, attention, decoding)
        self.counters.iterations.append((float(prompt_tokens + decoding), 1))
        self.clock.at(
            self.clock.now + seconds, self._end_mixed, self._event, chunks, decoding > 0, seconds
        )

    def _end_mixed(
        self, event: int, chunks: list[tuple[Sequence, int]], decoded: bool, seconds: float
    ) -> None:
        if event != self._event:  # cannot happen: nothing shortens a mixed iteration
            return
        if decoded:
            self._stepped(1, self.clock.now - seconds, seconds)
        elif self.decoding:
            self._stalled_s += seconds  # everybody who decodes waited: their next gap is longer
        for sequence, chunk in chunks:
            if sequence.aborted:
                continue
            sequence.left -= chunk
            sequence.own += chunk
            self.kv_own += chunk
            if sequence.left <= 0:
                self.prefilling.remove(sequence)
                self._prefilled(sequence)
        self._retire()
        self._next(event)

    def _decode(self) -> None:
        decoding, grown = len(self.decoding), self._grown()
        first = self._heap_top()[0][0]
        steps = max(1, min(first - self.step, _LONGEST_EVENT, max(1, self._free() // grown)))
        seconds = self._seconds(0, 0.0, decoding)
        self._block = (self.clock.now, seconds, steps)
        self.clock.at(self.clock.now + steps * seconds, self._end_decoding, self._event)

    def _heap_top(self) -> list[tuple[int, int, Sequence]]:
        while self._finishing:
            finish, _, sequence = self._finishing[0]
            if sequence in self.decoding and sequence.finish_step == finish:
                break
            heapq.heappop(self._finishing)
        return self._finishing[:1]

    def _end_decoding(self, event: int) -> None:
        if event != self._event or self._block is None:
            return
        start, seconds, steps = self._block
        self._block = None
        self.counters.iterations.append((float(len(self.decoding)), steps))
        self._stepped(steps, start, seconds)
        self._retire()
        self._next(event)

    def _stepped(self, steps: int, start: float, seconds: float) -> None:
        tokens = self._tokens_per_step()
        n = len(self.decoding)
        self.steps.append((self.step, start, seconds))
        self.step += steps
        self.kv_own += round(steps * n * tokens)
        self._context += round(steps * n * tokens)
        self.counters.gaps += [(seconds + self._stalled_s, n), (seconds, (steps - 1) * n)]
        self._stalled_s = 0.0
        if self.settings.draft_tokens:
            self.counters.drafts += steps * n
            self.counters.draft_tokens += steps * n * self.settings.draft_tokens
            self.counters.accepted_tokens += steps * n * (tokens - 1.0)

    def _tokens_per_step(self) -> float:
        """Expected tokens of one step: 1, or 1 + a + a^2 + ... with a draft of which each token is accepted with probability a."""
        s = self.settings
        return 1.0 + sum(s.acceptance**i for i in range(1, s.draft_tokens + 1))

    def _retire(self) -> None:
        while top := self._heap_top():
            finish, _, sequence = top[0]
            if finish > self.step:
                return
            heapq.heappop(self._finishing)
            self._tally(sequence)
            self.decoding.discard(sequence)
            self._finish(sequence)

    def _tally(self, sequence: Sequence) -> None:
        """Book the tokens made since the sequence joined the batch, which the engine only counts as a whole."""
        tokens = min(
            sequence.output_tokens - sequence.made,
            round((self.step - sequence.joined_step) * self._tokens_per_step()),
        )
        grown = round((self.step - sequence.joined_step) * self._tokens_per_step())
        sequence.spans.append((sequence.joined_step, max(0, tokens)))
        sequence.made += max(0, tokens)
        sequence.own += grown
        self._context -= sequence.input_tokens + sequence.made

    def _prefilled(self, sequence: Sequence) -> None:
        self._share_prefix(sequence)
        if sequence.first_token < 0.0:
            sequence.first_token = self.clock.now
            sequence.made = 1
            self.clock.fire(sequence.first, self.clock.now)
        if sequence.made >= sequence.output_tokens:
            self._finish(sequence)
            return
        steps = -(-(sequence.output_tokens - sequence.made) // self._tokens_per_step())
        sequence.joined_step = self.step
        sequence.finish_step = self.step + int(steps)
        self._tie += 1
        heapq.heappush(self._finishing, (sequence.finish_step, self._tie, sequence))
        self.decoding.add(sequence)
        self._context += sequence.input_tokens + sequence.made

    def _finish(self, sequence: Sequence) -> None:
        sequence.finished = self.clock.now
        self.counters.output_tokens += sequence.output_tokens
        self.counters.finished[
            "length" if sequence.output_tokens >= sequence.max_tokens else "stop"
        ] += 1
        self.ended.append(sequence)
        if sequence.keep and self.settings.prefix_cache:
            kept = (
                sequence.input_tokens
                + sequence.output_tokens
                - sum(self.cache.get(name, 0) for name in sequence.shared if name != sequence.keep)
            )
            self.kv_cache += max(0, kept) - self.cache.pop(sequence.keep, 0)
            self.cache[sequence.keep] = max(0, kept)
        self._release(sequence)
        self.clock.fire(sequence.done, self.clock.now)

    def _make_room(self) -> bool:
        """Take out the newest until what the others write next fits. Returns whether one had to go: then nobody comes in, as in vLLM V1."""
        any_one = False
        while self._running > 1 and not self._room(
            self._grown() + min(self._promised(), self.settings.token_budget)
        ):
            self._preempt()
            any_one = True
        return any_one

    def _grown(self) -> int:
        """Tokens that the decoding sequences write in an iteration."""
        return max(1, round(len(self.decoding) * self._tokens_per_step())) if self.decoding else 0

    def _promised(self) -> int:
        """Tokens of admitted prompts that are still to be written."""
        return sum(sequence.left for sequence in self.prefilling)

    def _preempt(self) -> None:
        """Take the sequence out that was admitted last; what no cache holds of it is computed again when its turn comes."""
        victim = max((*self.decoding, *self.prefilling), key=lambda s: s.admitted)
        if victim in self.decoding:
            self._tally(victim)
            self.decoding.discard(victim)
        else:
            self.prefilling.remove(victim)
        whole = victim.input_tokens + victim.made
        if self.settings.prefix_cache and victim.own:
            victim.again, victim.again_from = (
                f"{_PREEMPTED}{victim.admitted}",
                max(0, whole - max(1, victim.left) - victim.own),
            )
            self.cache[victim.again] = victim.own
            self.kv_cache += victim.own
        self._release(victim)
        victim.left = whole
        victim.preemptions += 1
        self.counters.preemptions += 1
        self.waiting.appendleft(victim)

    # --- memory ---

    def _free(self) -> int:
        return self.settings.kv_tokens - self.kv_own - self.kv_cache - _BLOCK // 2 * self._running

    def _room(self, tokens: int) -> bool:
        """Whether so many tokens fit, after forgetting the oldest prefixes that nobody holds."""
        if self._free() < tokens:
            self._evict(tokens)
        return self._free() >= tokens

    def _evict(self, tokens: int) -> None:
        for name in [n for n in self.cache if not self._holders.get(n)]:
            lacking = tokens - self._free()
            if lacking <= 0:
                return
            if (
                name.startswith(_PREEMPTED) and self.cache[name] > lacking + _BLOCK
            ):  # its end first, by blocks
                gone = -(-lacking // _BLOCK) * _BLOCK
                self.cache[name] -= gone
                self.kv_cache -= gone
            else:
                self.kv_cache -= self.cache.pop(name)

    def _hit(self, sequence: Sequence) -> int:
        if not self.settings.prefix_cache:
            return 0
        hit = 0
        for name, tokens in sequence.prefix:
            stored = self.cache.get(name, 0)
            hit += min(tokens, stored)
            if stored < tokens:
                break
        if sequence.again in self.cache and hit >= sequence.again_from:
            hit = max(hit, sequence.again_from + self.cache[sequence.again])
        return min(hit, sequence.left - 1) // _BLOCK * _BLOCK

    def _take_prefix(self, sequence: Sequence) -> int:
        hit = self._hit(sequence)
        for name, _ in sequence.prefix:
            if name not in self.cache or not hit:
                break
            self.cache.move_to_end(name)
            self._hold(sequence, name)
        if sequence.again in self.cache and hit > sequence.again_from:
            self._hold(sequence, sequence.again)
        return hit

    def _hold(self, sequence: Sequence, name: str) -> None:
        self._holders[name] = self._holders.get(name, 0) + 1
        sequence.shared.append(name)

    def _take_back(self, sequence: Sequence, hit: int) -> None:
        """What it had computed before it was preempted is its own again."""
        found = hit - sequence.again_from
        sequence.shared.remove(sequence.again)
        self._holders.pop(sequence.again)
        self.kv_cache -= self.cache.pop(sequence.again)
        self.kv_own += found
        sequence.own += found
        sequence.again = ""

    def _share_prefix(self, sequence: Sequence) -> None:
        """Whole prefixes that were computed just now become everybody's."""
        if not self.settings.prefix_cache:
            return
        for name, tokens in sequence.prefix:
            if name == sequence.keep or name in self.cache or tokens < _BLOCK:
                continue
            moved = min(tokens, sequence.own)
            self.cache[name] = tokens
            self.kv_cache += tokens
            self.kv_own -= moved
            sequence.own -= moved
            self._hold(sequence, name)

    def _release(self, sequence: Sequence) -> None:
        self.kv_own -= sequence.own
        sequence.own = 0
        self._let_go(sequence)

    def _let_go(self, sequence: Sequence) -> None:
        for name in sequence.shared:
            self._holders[name] -= 1
        sequence.shared.clear()

    # --- cost ---

    def _seconds(self, prompt_tokens: int, attention: float, decoding: int) -> float:
        s = self.settings
        verified = decoding * (1 + s.draft_tokens)
        tokens = prompt_tokens + verified
        compute = _TOKEN_S * tokens**_TOKEN_POWER + _ATTENTION_S * attention
        memory = _WEIGHTS_S + _KV_S * max(0, self._context) * bool(decoding)
        seconds = (
            float((compute**3 + memory**3) ** (1 / 3))
            + _HOST_S
            + _SEQUENCE_S * (-(-verified // 8) * 8)
        )
        seconds += _EAGER_S * (decoding > s.graph_limit)
        seconds *= 1.0 + _DRAFT_COST * s.draft_tokens * bool(decoding)
        slow = s.slow[self.index] if self.index < len(s.slow) else 1.0
        seconds *= slow * s.throttled * self._cold() * self.dice.lognormvariate(0.0, _NOISE)
        if self.dice.random() < _STALL_SHARE:
            seconds += self.dice.expovariate(1.0 / _STALL_S) / max(1, min(4, decoding))
        return seconds

    def _cold(self) -> float:
        """Kernels compile and pages come in during the first minute of a new replica."""
        age = self.clock.now - self.born
        if self.index not in self.settings.cold_replicas or self.settings.cold_s <= 0.0:
            return 1.0
        return 1.0 + 6.0 * float(2.0 ** (-age / (self.settings.cold_s / 3.0)))

    def token_time(self, sequence: Sequence, number: int) -> float:
        """When the engine had made a sequence's token of this number (1 is the first), from its record of steps."""
        if number <= 1:
            return sequence.first_token
        left, per_step = number - 1, self._tokens_per_step()
        for joined, tokens in sequence.spans:
            if left <= tokens:
                step = joined + max(1, round(left / per_step)) - 1
                at = bisect.bisect_right(self.steps, (step, math.inf, math.inf)) - 1
                first, start, seconds = self.steps[at]
                return min(
                    sequence.finished if sequence.finished >= 0.0 else math.inf,
                    start + (step - first + 1) * seconds,
                )
            left -= tokens
        return sequence.finished
