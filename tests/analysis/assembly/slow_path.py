"""The critical path written down once more, slowly: one recursive walk over Python objects, straight from its description. The tests' reference.

Walk back from the end of a span: its last-finishing child is on the path, the span itself owns what lies between that child's end and the cursor,
then the walk goes on before the child's start. Children are clipped to their parent, and one that overlaps a later-finishing sibling counts up
to that sibling's start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from overrun.analysis.assembly import critical_path as cp

SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5


@dataclass(slots=True)
class Node:
    """One span: rows of a Forest with names. `parent` is a row or None; times in ns; None is "not sent"."""

    start: int
    end: int
    parent: int | None = None
    role: int = cp.PLAIN
    stage: int = cp.OTHER
    kind: int = 1
    domain: int = 0
    true_root: bool = False
    tokens: bool = False
    left: bool = False
    cancelled: bool = False
    ttft: int | None = None
    queue: int | None = None
    prefill: int | None = None
    decode: int | None = None
    # Found out on the way.
    children: list[Node] = field(default_factory=list)
    above: Node | None = None
    call: Node | None = None
    engine: Node | None = None
    has_phases: bool = False
    bearing: int | None = None
    off: bool = False
    row: int = -1
    shift: int = 0

    @property
    def length(self) -> int:
        return self.end - self.start

    def below(self) -> Iterator[Node]:
        for child in self.children:
            yield child
            yield from child.below()


@dataclass(slots=True)
class Answer:
    """Root row, and pieces (row, stage, from, to) from the end of the root backwards."""

    root: int
    pieces: list[tuple[int, int, int, int]]


def reference(nodes: Sequence[Node]) -> Answer:
    """The critical path of one trace. The nodes are used up: they come out repaired."""
    for row, node in enumerate(nodes):
        node.row = row
    _cut_cycles(nodes)
    root = _root(nodes)
    _adopt_orphans(nodes, root)
    for node in nodes:
        if node.parent is not None:
            node.above = nodes[node.parent]
    _lift(nodes, root)
    _link(nodes)
    _synchronise(root)
    _hand_over(nodes, root)
    _link(nodes)
    _settle(nodes, root)
    _lift(nodes, root)
    _link(nodes)
    _forget_the_unwaited(nodes, root)
    return Answer(root.row, list(_walk(root, root.start, root.end)))


def _link(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.children = []
    for node in nodes:
        if node.above is not None:
            node.above.children.append(node)


# --- the tree ---


def _cut_cycles(nodes: Sequence[Node]) -> None:
    """Following parents from each span in order, the span where a walk meets itself loses its parent."""
    done: set[int] = set()
    for first in range(len(nodes)):
        walk: list[int] = []
        at: int | None = first
        while at is not None and at not in done and at not in walk:
            walk.append(at)
            at = nodes[at].parent
        if at is not None and at in walk:
            nodes[at].parent = None
        done.update(walk)


def _root(nodes: Sequence[Node]) -> Node:
    """Of the spans without a parent: one that says so, then one that is no mere part of a request, then the earliest, then the longest."""
    loose = [n for n in nodes if n.parent is None]
    return min(
        loose,
        key=lambda n: (
            not n.true_root,
            n.role in (cp.PHASE, cp.FOLDED, cp.WRITE),
            n.start,
            -n.end,
            n.row,
        ),
    )


def _adopt_orphans(nodes: Sequence[Node], root: Node) -> None:
    """An orphan goes to the tightest span around it that is not below it, else to the root."""
    for orphan in nodes:
        if orphan.parent is not None or orphan is root:
            continue
        around = [
            n
            for n in nodes
            if n is not orphan
            and n.start <= orphan.start
            and n.end >= orphan.end
            and not _is_under(nodes, n, orphan)
        ]
        tightest = min(around, key=lambda n: (n.length, n.row), default=root)
        orphan.parent = tightest.row if tightest.length < root.length else root.row


def _is_under(nodes: Sequence[Node], node: Node, top: Node) -> bool:
    at: int | None = node.row
    while at is not None:
        if at == top.row:
            return True
        at = nodes[at].parent
    return False


def _lift(nodes: Sequence[Node], root: Node) -> None:
    """Children of a folded span are its parent's."""
    for node in nodes:
        while node.above is not None and node.above.role == cp.FOLDED and node.above is not root:
            node.above = node.above.above


def _hand_over(nodes: Sequence[Node], root: Node) -> None:
    """What outlives its parent belongs to the first one above that lasts as long, as long as none on the way did something else after the one below it."""
    before = [node.above for node in nodes]
    limit = root.end + max(cp.ASYNC_NS, int(root.length * cp.ASYNC_SHARE))
    for node in nodes:
        at = node.above
        if at is None or node.role in (cp.PHASE, cp.FOLDED) or node.domain != at.domain:
            continue
        while (
            at is not root
            and node.end > at.end
            and at.role in (cp.PLAIN, cp.CONTAINER)
            and at.kind not in (SERVER, CONSUMER)
        ):
            over = before[at.row]
            assert over is not None
            if over.domain != at.domain or any(
                at.end < sibling.end <= limit
                for sibling in over.children
                if sibling is not at and sibling.length
            ):
                break
            at = over
        node.above = at


def _synchronise(node: Node) -> None:
    """A child taken with another clock that sticks out of its parent moves by the smallest offset that fits, with all that shares its clock.

    It stays where it is if it began within its parent and nothing fits, or its parent is known to have left before it ended.
    """
    for child in node.children:
        if child.domain == node.domain:
            child.shift = node.shift
        elif (
            child.kind != CONSUMER
            and node.kind != PRODUCER
            and (child.start < node.start or child.end > node.end)
        ):
            room, seen = (
                node.length - child.length,
                child.role == cp.ENGINE and node.role == cp.LLM and not child.left,
            )
            if seen and room >= 0 and child.ttft is not None and node.ttft is not None:
                # Both saw the first token: as near to the client's as the call has room for.
                child.shift = node.start + min(max(0, node.ttft - child.ttft), room) - child.start
            elif child.start < node.start:
                child.shift = node.start - child.start
            elif child.length <= node.length and not (child.left and child.start < node.end):
                child.shift = node.end - child.end
        child.start += child.shift
        child.end += child.shift
        _synchronise(child)


# --- what each span counts as ---


def _settle(nodes: Sequence[Node], root: Node) -> None:
    # Read before anything is renamed: which model calls are mere wrappers, which spans lead to an engine, which engines tell their phases.
    wrappers = {
        id(n)
        for n in nodes
        if n.role == cp.LLM and any(b.role == cp.LLM and b.tokens for b in n.below())
    }
    to_engine = {id(n) for n in nodes if any(b.role == cp.ENGINE for b in n.below())}
    for node in nodes:
        if node.role == cp.PHASE:
            at = node.above
            while at is not None and at.role != cp.ENGINE:
                at = at.above
            if at is not None:
                at.has_phases = True
    if root.role == cp.LLM and id(root) in wrappers:
        root.role, root.stage = cp.CONTAINER, _around(root)
    elif root.role in (cp.LLM, cp.ENGINE):
        root.call = root
    else:
        root.role, root.stage = cp.CONTAINER, cp.OTHER
    for child in root.children:
        _settle_below(child, wrappers, to_engine)


def _around(wrapper: Node) -> int:
    """The stage of what a call spends around the one that it holds: the network where a server makes that."""
    return cp.NETWORK if any(child.kind == SERVER for child in wrapper.children) else cp.OTHER


def _settle_below(node: Node, wrappers: set[int], to_engine: set[int]) -> None:
    above = node.above
    assert above is not None
    while above.role == cp.FOLDED and above.above is not None:
        above = above.above
    node.call, node.bearing = above.call, None if node.kind == CONSUMER else above.bearing
    if node.role == cp.WRITE:
        node.role, node.stage = cp.PLAIN, cp.POST
    if node.role == cp.FOLDED:
        node.off = True
    elif node.role == cp.LLM:
        if id(node) in wrappers:
            node.role, node.stage = cp.CONTAINER, _around(node)
        elif above.call is not None:
            node.role, node.off = cp.FOLDED, True
        else:
            node.call = node
            if node.bearing == cp.GUARDRAIL:
                node.stage = cp.GUARDRAIL
    elif node.role == cp.ENGINE:
        if above.call is None:
            node.call = node
        elif above.call.role == cp.LLM and (
            above.call.engine is None or node.end > above.call.engine.end
        ):
            above.call.engine = node
    elif node.role != cp.PHASE and above.call is not None:
        if id(node) in to_engine:
            node.role, node.stage = cp.PLAIN, cp.NETWORK
        elif node.stage in (cp.NETWORK, cp.OTHER):
            node.role, node.off = cp.FOLDED, True
    elif node.role == cp.PHASE:
        if node.stage == cp.NETWORK and above.call is None and node.bearing is not None:
            node.stage = node.bearing
    else:
        if (
            node.stage in (cp.NETWORK, cp.OTHER)
            and node.bearing is not None
            and node.kind != CONSUMER
        ):
            node.stage = node.bearing
        if node.role == cp.PLAIN and node.stage not in (cp.OTHER, cp.NETWORK, cp.WAIT_USER):
            node.bearing = node.stage
    for child in node.children:
        _settle_below(child, wrappers, to_engine)


def _forget_the_unwaited(nodes: Sequence[Node], root: Node) -> None:
    """What ends well after the root and holds no model call was not waited for, nor a call that was cancelled when another had answered."""
    limit = root.end + max(cp.ASYNC_NS, int(root.length * cp.ASYNC_SHARE))
    for node in nodes:
        # Wrapped and folded calls are renamed by now and call nobody's attention.
        holds_call = any(n.role in (cp.LLM, cp.ENGINE) for n in (node, *node.below()))
        if node is not root and node.end > limit and not holds_call:
            node.off = True
        # Who was given up once another call beside it had answered.
        beside = node.above.children if node.above is not None else []
        if (
            node.role == cp.LLM
            and node.cancelled
            and any(
                o.role == cp.LLM
                and not o.cancelled
                and o.start < node.end
                and node.start < o.end <= node.end
                for o in beside
            )
        ):
            node.off = True


# --- the walk ---


def _walk(node: Node, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    cursor = high
    for child in sorted(
        (c for c in node.children if not c.off),
        key=lambda c: (-c.end, not c.tokens, -c.start, c.row),
    ):
        end, start = min(child.end, cursor), max(child.start, low)
        if end > start:
            yield from _own(node, end, cursor)
            yield from _walk(child, start, end)
            cursor = start
    yield from _own(node, low, cursor)


def _own(node: Node, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    """A stretch of a span's own time, cut where its stage changes."""
    at = low
    for edge, stage in [*_edges(node), (high, _last_stage(node))]:
        stop = min(edge, high)
        if stop > at:
            yield node.row, stage, at, stop
            at = stop


def _edges(node: Node) -> list[tuple[int, int]]:
    """Where a span's own time changes its stage: (moment, stage up to it); after the last one comes `_last_stage`."""
    if (
        node.role == cp.LLM
        and node.stage != cp.GUARDRAIL
        and node.engine is None
        and node.ttft is not None
    ):
        return [(node.start + node.ttft, cp.FIRST_TOKEN)]
    if node.role == cp.ENGINE and not node.has_phases and not _says_nothing(node):
        if _says_only_queue(node):
            return [(node.start + (node.queue or 0), cp.QUEUE)]
        queue, prefill = node.queue or 0, node.prefill or 0
        known = node.ttft is not None and node.prefill is not None
        front = max((node.ttft or 0) - queue - prefill, 0) if known else 0
        scheduled = node.start + front + queue
        out = [(node.start + front, cp.OTHER), (scheduled, cp.QUEUE)]
        if node.prefill is not None:
            first = scheduled + prefill
            out.append((first, cp.PREFILL))
        else:
            first = max(scheduled, node.start + (node.ttft or 0))
            out.append((first, cp.FIRST_TOKEN))
        return [*out, (node.end if node.decode is None else first + node.decode, cp.DECODE)]
    return []


def _says_nothing(node: Node) -> bool:
    return node.queue is None and node.prefill is None and node.ttft is None and node.decode is None


def _says_only_queue(node: Node) -> bool:
    return (
        node.queue is not None
        and node.prefill is None
        and node.ttft is None
        and node.decode is None
    )


def _last_stage(node: Node) -> int:
    if node.role == cp.LLM and node.stage != cp.GUARDRAIL:
        if node.engine is not None:
            return cp.NETWORK
        return cp.GENERATION if node.ttft is None else cp.DECODE
    if node.role == cp.ENGINE:
        return (
            cp.GENERATION
            if not node.has_phases and (_says_nothing(node) or _says_only_queue(node))
            else cp.OTHER
        )
    return node.stage
