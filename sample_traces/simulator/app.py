"""What does the application do with a request? Its steps as processes, and the spans that its SDKs would write about them.

Three applications: `rag` (guardrail, embedding, stores, rerank, answer), `chat` (history, answer, persist) and `agent` (plan, tools, answer);
beside them a batch job that summarises. All of them call a model through `calls.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from overrun.sample_traces.simulator import spans as sp
from overrun.sample_traces.simulator import traffic
from overrun.sample_traces.simulator.calls import Asked, Caller, Shape
from overrun.sample_traces.simulator.clock import Clock, Process, Slots
from overrun.sample_traces.simulator.settings import Settings
from overrun.sample_traces.simulator.spans import Book, Span
from overrun.sample_traces.simulator.traffic import Request, lognormal

_STORES: Final = ("documents", "tickets", "policies", "wiki")
_TOOLS: Final = ("search_orders", "get_customer", "check_inventory", "create_quote")
_COMMON: Final = 60.0  # questions that are asked again and again
_BATCH_SERVICE: Final = "nightly-summaries"


@dataclass(slots=True)
class Outcome:
    """What came of a request, as its user saw it; times in seconds."""

    request: Request
    route: str
    e2e: float
    ttft: float | None
    ok: bool
    batch: bool
    calls: list[Asked] = field(default_factory=list)


class App:
    """Handles requests in a world that changes at the onset."""

    def __init__(
        self, clock: Clock, book: Book, world: Callable[[], Settings], caller: Caller
    ) -> None:
        self.clock, self.book, self.world, self.caller = clock, book, world, caller
        self.outcomes: list[Outcome] = []
        self._threads: dict[int, Slots] = {}

    def handle(self, request: Request) -> Process:
        """One request from its arrival to its answer."""
        s = self.world()
        if request.kind == "batch":
            yield from self._batch(request, s)
            return
        resource = f"{s.service}/{s.version}/{request.index % s.pods}"
        other = bool(s.other_route) and request.uniform(traffic.ROUTE) < s.other_share
        route = s.other_route if other else s.route
        root = self._open(
            0, 0, f"POST {route}", sp.SERVER, sp.FASTAPI, resource, _http(s, request, route)
        )
        outcome = Outcome(request, route, 0.0, None, False, False)
        steps: Any = {"rag": self._rag, "chat": self._chat, "agent": self._agent}[s.kind]
        if s.silent_ms > 0.0:
            yield lognormal(s.silent_ms, 0.5, request.z[traffic.SILENT]) / 1000.0
        yield from steps(request, s, root, outcome, other)
        last = outcome.calls[-1] if outcome.calls else None
        outcome.ok = last is not None and not last.error
        outcome.ttft = (
            last.first - root.start
            if last is not None and last.first is not None and outcome.ok
            else None
        )
        left = last is not None and last.error.endswith("CancelledError")
        root.attributes["http.response.status_code"] = 200 if outcome.ok else 499 if left else 504
        root.error = "" if outcome.ok else "499" if left else "504"
        self._close(root)
        outcome.e2e = root.end - root.start
        self.outcomes.append(outcome)

    # --- the applications ---

    def _rag(
        self, request: Request, s: Settings, root: Span, outcome: Outcome, other: bool
    ) -> Process:
        yield from self._guard(request, s, root, outcome)
        span = self._open(
            root.trace,
            root.id,
            "embeddings bge-m3",
            sp.CLIENT,
            sp.OPENAI,
            root.resource,
            {
                "gen_ai.operation.name": "embeddings",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "bge-m3",
                "server.address": "embedder.internal",
                "server.port": 8080,
                "gen_ai.response.model": "bge-m3",
                "gen_ai.usage.input_tokens": 24,
            },
        )
        yield lognormal(s.embed_ms, 0.25, request.z[traffic.EMBED]) / 1000.0
        self._close(span)
        stores = range(s.stores)
        if request.uniform(traffic.SEQUENTIAL) >= s.sequential_share:
            yield from self.clock.all_of(
                [self.clock.start(self._search(request, s, root, k)) for k in stores]
            )
        else:
            for k in stores:
                yield from self._search(request, s, root, k)
        yield from self._plain(
            root,
            "rerank",
            lognormal(s.rerank_ms, 0.25, request.z[traffic.RERANK]),
            {"reranker.model": "bge-reranker-v2", "top_k": 5},
        )
        shape = self._shape(request, s, other)
        yield from self._tokenize(request, s, shape)
        outcome.calls.append(
            (yield from self.caller.ask(request, s, root, shape, len(outcome.calls)))
        )
        yield from self._plain(
            root, "citations", lognormal(s.post_ms, 0.3, request.z[traffic.POST]), {}
        )

    def _chat(
        self, request: Request, s: Settings, root: Span, outcome: Outcome, other: bool
    ) -> Process:
        span = self._open(
            root.trace,
            root.id,
            "SELECT chat",
            sp.CLIENT,
            sp.PSYCOPG,
            root.resource,
            {
                "db.system.name": "postgresql",
                "db.namespace": "chat",
                "db.operation.name": "SELECT",
                "server.address": "pg.internal",
                "db.query.text": "SELECT role, content FROM turns WHERE session = %s",
            },
        )
        yield lognormal(s.search_ms * 0.2, s.search_sigma, request.z[traffic.SEARCH]) / 1000.0
        self._close(span)
        yield from self._guard(request, s, root, outcome)
        shape = self._shape(request, s, other)
        yield from self._tokenize(request, s, shape)
        beside = (
            self.caller.begin_suggestions(request, s, root, shape)
            if s.suggestion_tokens > 0.0
            else None
        )
        outcome.calls.append(
            (yield from self.caller.ask(request, s, root, shape, len(outcome.calls)))
        )
        if beside is not None:
            self.clock.fire(beside)
        span = self._open(
            root.trace,
            root.id,
            "INSERT chat",
            sp.CLIENT,
            sp.PSYCOPG,
            root.resource,
            {
                "db.system.name": "postgresql",
                "db.namespace": "chat",
                "db.operation.name": "INSERT",
                "db.query.text": "INSERT INTO turns VALUES (%s, %s, %s)",
                "server.address": "pg.internal",
            },
        )
        yield lognormal(s.post_ms, 0.3, request.z[traffic.POST]) / 1000.0
        self._close(span)

    def _agent(
        self, request: Request, s: Settings, root: Span, outcome: Outcome, other: bool
    ) -> Process:
        agent = self._open(
            root.trace,
            root.id,
            "invoke_agent support",
            sp.INTERNAL,
            sp.HAND,
            root.resource,
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"},
        )
        looping = request.uniform(traffic.LOOP) < s.loop_share
        steps = (s.steps if request.z[step_z(0, 0)] > -0.6 else max(1, s.steps - 1)) + (
            s.loop_steps if looping else 0
        )
        context = s.system_tokens + lognormal(
            s.input_tokens, s.input_sigma, request.z[traffic.INPUT]
        )
        for step in range(steps):
            out = max(8, round(lognormal(34.0, 0.25, request.z[step_z(step, 1)])))
            plan = Shape(
                round(context),
                out,
                s.max_tokens,
                self._prefix(request, s, s.system_tokens, ""),
                "",
                planner=True,
            )
            asked = yield from self.caller.ask(request, s, agent, plan, len(outcome.calls))
            outcome.calls.append(asked)
            if asked.error:
                break
            which = [0] if looping and step >= s.steps else list(range(s.tools if step == 0 else 1))
            if request.uniform(traffic.SEQUENTIAL) >= s.sequential_share:
                yield from self.clock.all_of(
                    [
                        self.clock.start(self._tool(request, s, agent, step, k, looping))
                        for k in which
                    ]
                )
            else:
                for k in which:
                    yield from self._tool(request, s, agent, step, k, looping)
            context += out + 180 * len(which)
        if not outcome.calls[-1].error:
            shape = self._shape(request, s, other)
            final = Shape(
                round(context),
                shape.output_tokens,
                s.max_tokens,
                self._prefix(request, s, s.system_tokens, ""),
                "",
                shape.reasoning_tokens,
            )
            outcome.calls.append(
                (yield from self.caller.ask(request, s, agent, final, len(outcome.calls)))
            )
        self._close(agent)

    def _batch(self, request: Request, s: Settings) -> Process:
        resource = f"{_BATCH_SERVICE}/1.9.0/0"
        root = self._open(
            0,
            0,
            "summarize_document",
            sp.INTERNAL,
            sp.HAND,
            resource,
            {"overrun.workload": "batch", "job.name": "nightly"},
        )
        own = lognormal(s.batch_input_tokens, 0.3, request.z[traffic.INPUT])
        out = min(
            s.batch_max_tokens,
            round(lognormal(s.batch_output_tokens, 0.25, request.z[traffic.OUTPUT])),
        )
        head = (("job", s.batch_system_tokens),) if s.batch_system_tokens else ()
        shape = Shape(
            s.batch_system_tokens + round(own), out, s.batch_max_tokens, head, "", stream=False
        )
        asked = yield from self.caller.ask(request, s, root, shape, 0)
        self._close(root)
        self.outcomes.append(
            Outcome(request, "batch", root.end - root.start, None, not asked.error, True, [asked])
        )

    # --- their parts ---

    def _shape(self, request: Request, s: Settings, other: bool) -> Shape:
        """How long the prompt and the answer of a request are."""
        z, question = request.z, _question(request, s)
        asked_z, said_z = z[traffic.INPUT], z[traffic.OUTPUT]
        if question >= 0:  # the same words, and so the same lengths
            asked_z, said_z = (
                random.Random(f"question/{question}").gauss(),
                random.Random(f"answer/{question}").gauss(),
            )
        own = lognormal(s.input_tokens, s.input_sigma, asked_z)
        out = lognormal(s.output_tokens, s.output_sigma, said_z)
        if s.input_factor != 1.0 and request.uniform(traffic.SLOW_INPUT) < s.input_share:
            own *= s.input_factor
        if s.output_factor != 1.0 and request.uniform(traffic.SLOW_OUTPUT) < s.output_share:
            out *= s.output_factor
        if other:
            own, out = own * s.other_size, out * s.other_size
        if request.kind == "noisy":
            own, out = own * s.noisy_input_factor, out * s.noisy_output_factor
        if request.kind == "huge":
            own = float(s.huge_tokens)
        history = s.history_tokens * min(request.turn - 1, s.history_kept) if request.turn else 0
        thinks = s.reasoning_tokens > 0.0 and request.uniform(traffic.THINK) < s.reasoning_share
        deep = s.deep_factor if request.uniform(traffic.DEEP) < s.deep_share else 1.0
        reasoning = (
            round(deep * lognormal(s.reasoning_tokens, 0.3, z[traffic.THINK_SIZE])) if thinks else 0
        )
        tokens = min(s.max_tokens, max(4, round(out)) + reasoning)
        session = f"c:{request.session}" if request.turn and request.turn <= s.history_kept else ""
        prefix = self._prefix(request, s, s.system_tokens, session, history)
        asked = s.system_tokens + history + max(8, round(own))
        asked = min(asked, s.input_limit) if s.input_limit else asked
        keep = session if prefix and prefix[0][0] == "system" else ""
        words = (
            ""
            if s.repeat_share <= 0.0
            else f"{other}/{question}"
            if question >= 0
            else f"own/{request.index}"
        )
        return Shape(
            asked, tokens, s.max_tokens, prefix, keep, min(reasoning, tokens - 1), words=words
        )

    def _prefix(
        self, request: Request, s: Settings, system: int, session: str, history: int = 0
    ) -> tuple[tuple[str, int], ...]:
        if request.uniform(traffic.BROKEN) < s.system_broken_share:
            return ()  # something new stands at the head, so nothing behind it matches
        return (
            (("system", system), (session, history))
            if session and history
            else (("system", system),)
        )

    def _search(self, request: Request, s: Settings, root: Span, store: int) -> Process:
        z = request.z[(traffic.SEARCH, traffic.SEARCH_2, traffic.SEARCH_3)[store % 3]]
        ms = lognormal(s.search_ms, s.search_sigma, z)
        if (
            store == 0
            and s.search_factor != 1.0
            and request.uniform(traffic.SLOW_SEARCH) < s.search_share
        ):
            ms *= s.search_factor
        span = self._open(
            root.trace,
            root.id,
            "qdrant.query_points",
            sp.CLIENT,
            sp.QDRANT,
            root.resource,
            {
                "db.system": "qdrant",
                "db.operation": "query_points",
                "qdrant.query_points.collection_name": _STORES[store % 4],
                "db.vector.query.top_k": 8,
                "server.address": "qdrant.internal",
            },
        )
        yield ms / 1000.0
        self._close(span)

    def _tool(
        self, request: Request, s: Settings, agent: Span, step: int, which: int, looping: bool
    ) -> Process:
        name = _TOOLS[which % len(_TOOLS)]
        arguments = (
            '{"query": "status"}'
            if looping and step >= 1
            else f'{{"id": {(request.index * 7 + 13 * step + which) % 9973}}}'
        )
        span = self._open(
            agent.trace,
            agent.id,
            f"execute_tool {name}",
            sp.INTERNAL,
            sp.HAND,
            agent.resource,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.arguments": arguments,
                "gen_ai.tool.call.id": f"call_{request.index}_{step}_{which}",
            },
        )
        seconds = lognormal(s.tool_ms, s.tool_sigma, request.z[step_z(step, 3 + which)]) / 1000.0
        if which == 0 and step == 0 and request.uniform(traffic.HANG) < s.tool_hang_share:
            seconds = s.tool_hang_s
            span.error = "TimeoutError"
        yield seconds
        self._close(span)

    def _guard(self, request: Request, s: Settings, root: Span, outcome: Outcome) -> Process:
        span = self._open(
            root.trace,
            root.id,
            "guardrail.input",
            sp.INTERNAL,
            sp.HAND,
            root.resource,
            {"guardrail.name": "input_policy"},
        )
        if s.guard_model:
            shape = Shape(420, 6, 16, (("guard", 320),), "", stream=False, model=s.guard_model)
            yield from self.caller.ask(request, s, span, shape, 7)
        else:
            yield lognormal(s.guard_ms, 0.2, request.z[traffic.GUARD]) / 1000.0
        self._close(span)

    def _plain(self, root: Span, name: str, ms: float, attributes: dict[str, sp.Value]) -> Process:
        span = self._open(
            root.trace, root.id, name, sp.INTERNAL, sp.HAND, root.resource, attributes
        )
        yield ms / 1000.0
        self._close(span)

    def _tokenize(self, request: Request, s: Settings, shape: Shape) -> Process:
        """Counting tokens on the event loop: everybody else in the process waits meanwhile."""
        if s.tokenizer_us <= 0.0:
            return
        thread = self._threads.setdefault(request.index % s.pods, Slots(self.clock, 1))
        yield from thread.take()
        yield s.tokenizer_us * shape.input_tokens / 1e6
        thread.give()

    # --- spans ---

    def _open(
        self,
        trace: int,
        parent: int,
        name: str,
        kind: int,
        scope: tuple[str, str],
        resource: str,
        attributes: dict[str, sp.Value],
    ) -> Span:
        now = self.clock.now
        return Span(
            trace or self.book.trace_id(),
            self.book.span_id(),
            parent,
            name,
            kind,
            now,
            now,
            resource,
            scope,
            attributes,
        )

    def _close(self, span: Span) -> None:
        span.end = self.clock.now
        self.book.add(span)


def _question(request: Request, s: Settings) -> int:
    """Which of the common questions a request asks, the first the most often; -1: one of its own."""
    if request.uniform(traffic.REPEAT) >= s.repeat_share:
        return -1
    return int(_COMMON ** request.uniform(traffic.QUESTION)) - 1


def step_z(step: int, which: int) -> int:
    """Where an agent's step finds its draw."""
    return traffic.step_draw(step, which)


def _http(s: Settings, request: Request, route: str) -> dict[str, sp.Value]:
    return {
        "http.request.method": "POST",
        "url.scheme": "http",
        "url.path": route,
        "http.route": route,
        "server.address": s.service,
        "network.protocol.version": "1.1",
        "user_agent.original": "Mozilla/5.0",
        "client.address": "10.2.0.17",
        "tenant.id": request.tenant,
        "session.id": request.session,
    }
