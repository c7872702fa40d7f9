"""Every nanosecond of a request belongs to one span and stage, whatever the tree looks like."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.critical_path import Forest, Paths, critical_paths
from overrun.collector.normalise import stages
from tests.analysis.assembly.slow_path import CLIENT, CONSUMER, PRODUCER, SERVER, Node, reference

SETTINGS = settings(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=120
)
Piece = tuple[int, int, int, int]


def forest(*traces: Sequence[Node]) -> Forest:
    """Traces as columns, parents as rows of the whole."""
    offset = np.cumsum([0, *(len(t) for t in traces)])
    nodes = [(int(o), n) for o, t in zip(offset, traces, strict=False) for n in t]

    def column(values: Any, kind: Any = np.int64) -> Any:
        return np.array(list(values), dtype=kind)

    def absent(name: str) -> Any:
        return column(-1 if getattr(n, name) is None else getattr(n, name) for _, n in nodes)

    return Forest(
        bounds=column(offset),
        parent=column(-1 if n.parent is None else o + n.parent for o, n in nodes),
        true_root=column((n.true_root for _, n in nodes), np.bool_),
        start=column(n.start for _, n in nodes),
        end=column(n.end for _, n in nodes),
        role=column(n.role for _, n in nodes),
        stage=column(n.stage for _, n in nodes),
        kind=column(n.kind for _, n in nodes),
        domain=column(n.domain for _, n in nodes),
        has_tokens=column((n.tokens for _, n in nodes), np.bool_),
        left=column((n.left for _, n in nodes), np.bool_),
        cancelled=column((n.cancelled for _, n in nodes), np.bool_),
        ttft=absent("ttft"),
        queue=absent("queue"),
        prefill=absent("prefill"),
        decode=absent("decode"),
    )


def pieces_of(paths: Paths) -> list[Piece]:
    return list(
        zip(
            *(
                a.tolist()
                for a in (paths.piece_row, paths.piece_stage, paths.piece_from, paths.piece_to)
            ),
            strict=True,
        )
    )


def path(*nodes: Node) -> list[Piece]:
    """The pieces of one trace, in time order."""
    return sorted(pieces_of(critical_paths(forest(nodes))), key=lambda p: p[2])


def stage_times(pieces: Sequence[Piece]) -> dict[str, int]:
    out: dict[str, int] = {}
    for _, stage, begin, end in pieces:
        name = stages.STAGES[stage]
        out[name] = out.get(name, 0) + end - begin
    return out


def check_laws(paths: Paths, traces: Sequence[Sequence[Node]]) -> None:
    """Pieces are disjoint, inside their root and fill it."""
    pieces = pieces_of(paths)
    offset = np.cumsum([0, *(len(t) for t in traces)])
    for k in range(len(traces)):
        root = int(paths.root[k])
        assert offset[k] <= root < offset[k + 1]
        mine = sorted((p for p in pieces if offset[k] <= p[0] < offset[k + 1]), key=lambda p: p[2])
        begin, end = int(paths.start[root]), int(paths.end[root])
        assert sum(p[3] - p[2] for p in mine) == max(end - begin, 0)
        edges = [begin, *(e for p in mine for e in p[2:]), end] if mine else []
        assert edges == sorted(edges)
        # No gaps either: each piece starts where the one before it ended.
        assert all(a == b for a, b in zip(edges[0::2], edges[1::2], strict=True))
        assert all(0 <= p[1] < cp.STAGES and p[3] > p[2] for p in mine)


# --- any tree ---

# Few distinct moments, so that spans touch, coincide and nest all the time.
moments = st.integers(0, 24).map(lambda t: 1_000_000_000 + t * 1_000_000)
attributes_ns = st.none() | st.integers(0, 12).map(lambda t: t * 1_000_000) | st.integers(0, 10**11)


@st.composite
def node(draw: st.DrawFn, n: int, *, plain_tree: bool = False) -> Node:
    begin = draw(moments)
    length = draw(st.integers(0, 16)) * draw(st.sampled_from((1, 999_999, 1_000_000, 1_000_000)))
    out = Node(begin, begin + length, role=draw(st.integers(0, 6)), stage=draw(st.integers(0, 14)))
    # Any row can be the parent: cycles, self-parents and several roots come of themselves.
    out.parent = None if plain_tree else draw(st.none() | st.integers(0, n - 1))
    out.true_root = out.parent is None and draw(st.booleans())
    out.kind, out.domain, out.tokens = (
        draw(st.integers(0, 5)),
        draw(st.sampled_from((0, 0, 0, 1, 2))),
        draw(st.booleans()),
    )
    out.left, out.cancelled = draw(st.booleans()), draw(st.booleans())
    if out.role in (cp.LLM, cp.ENGINE):
        out.ttft, out.queue, out.prefill, out.decode = (draw(attributes_ns) for _ in range(4))
    return out


@st.composite
def traces(draw: st.DrawFn, most: int = 14) -> list[Node]:
    n = draw(st.integers(1, most))
    nodes = [draw(node(n)) for _ in range(n)]
    for i, item in enumerate(nodes):
        if item.parent == i and draw(st.booleans()):
            item.parent = None
    return nodes


@SETTINGS
@given(st.lists(traces(), min_size=1, max_size=3))
def test_the_pieces_of_any_trace_fill_its_root_exactly(many: list[list[Node]]) -> None:
    check_laws(critical_paths(forest(*many)), many)


@SETTINGS
@given(traces())
def test_the_compiled_walk_agrees_with_the_slow_one(nodes: list[Node]) -> None:
    paths = critical_paths(forest(nodes))
    expected = reference(copy.deepcopy(nodes))
    assert int(paths.root[0]) == expected.root
    assert pieces_of(paths) == expected.pieces


@pytest.mark.parametrize("children", [17, 60])
def test_of_many_children_that_end_together_the_same_one_is_on_the_path(children: int) -> None:
    random = np.random.default_rng(children)
    for _ in range(20):
        begin, length, tokens = (
            random.integers(0, 9, children),
            random.integers(0, 9, children),
            random.integers(0, 2, children),
        )
        told = zip(begin.tolist(), length.tolist(), tokens.tolist(), strict=True)
        nodes = [
            Node(0, 20, true_root=True),
            *(
                Node(at, at + took, parent=0, stage=cp.TOOL, tokens=bool(counts))
                for at, took, counts in told
            ),
        ]
        assert pieces_of(critical_paths(forest(nodes))) == reference(copy.deepcopy(nodes)).pieces


@SETTINGS
@given(st.lists(traces(most=8), min_size=2, max_size=4))
def test_a_trace_does_not_care_for_its_neighbours(many: list[list[Node]]) -> None:
    together = pieces_of(critical_paths(forest(*many)))
    alone: list[Piece] = []
    offset = 0
    for nodes in many:
        alone += [(r + offset, *rest) for r, *rest in pieces_of(critical_paths(forest(nodes)))]  # type: ignore[misc]
        offset += len(nodes)
    assert together == alone


@st.composite
def trees(draw: st.DrawFn, most: int = 12) -> list[Node]:
    """A tree of one root (row 0) whose spans all start and end at moments of their own, with roles that leave others' roles alone."""
    n = draw(st.integers(2, most))
    times = draw(st.lists(st.integers(0, 10**6), min_size=2 * n, max_size=2 * n, unique=True))
    out = [Node(-10, 10**6 + 10, true_root=True, kind=SERVER, role=cp.CONTAINER)]
    for i in range(1, n):
        begin, end = sorted(times[2 * i : 2 * i + 2])
        role = draw(
            st.sampled_from((cp.PLAIN, cp.PLAIN, cp.CONTAINER, cp.LLM, cp.ENGINE, cp.WRITE))
        )
        out.append(
            Node(
                begin,
                end,
                parent=draw(st.integers(0, i - 1)),
                role=role,
                stage=draw(st.integers(0, 12)),
                domain=draw(st.integers(0, 1)),
                tokens=True,
            )
        )
    return out


@SETTINGS
@given(trees(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(nodes: list[Node], random: Any) -> None:
    order = list(range(len(nodes)))
    random.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    shuffled = copy.deepcopy([nodes[i] for i in order])
    for item in shuffled:
        item.parent = None if item.parent is None else place[item.parent]
    moved = sorted((place[r], *rest) for r, *rest in path(*nodes))
    assert moved == sorted(tuple(p) for p in path(*shuffled))


@SETTINGS
@given(trees(), st.data())
def test_a_span_in_the_shadow_of_a_sibling_changes_nothing(
    nodes: list[Node], data: st.DataObject
) -> None:
    before = path(*nodes)
    on_path = sorted({r for r, *_ in before if r})
    if not on_path:
        return
    other = nodes[data.draw(st.sampled_from(on_path))]
    if other.end - other.start < 3 or other.domain != nodes[other.parent or 0].domain:
        return
    shadow = Node(
        other.start + 1,
        other.end - 1,
        parent=other.parent,
        stage=data.draw(st.sampled_from((cp.TOOL, cp.OTHER, cp.RETRIEVAL))),
        domain=other.domain,
    )
    assert path(*nodes, shadow) == before
    late = Node(nodes[0].end - 5, nodes[0].end + 10**9, parent=0, stage=cp.POST)
    assert path(*nodes, late) == before


# An instant after a span's end is nothing else that its parent did: what outlives both is still the root's.
@example(
    [
        Node(0, 1_000, stage=cp.OTHER),
        Node(19, 30, parent=0),
        Node(2, 3, parent=1),
        Node(18, 40, parent=2),
    ]
)
@SETTINGS
@given(trees())
def test_a_span_without_duration_holds_no_time(nodes: list[Node]) -> None:
    instants = [
        Node(n.start, n.start, parent=i, stage=cp.TOOL, domain=n.domain)
        for i, n in enumerate(nodes)
    ]
    assert path(*nodes, *instants) == path(*nodes)


# --- shapes that break recursion, quadratic searches, and arithmetic ---


def test_a_chain_of_three_thousand_spans_is_walked_to_its_end() -> None:
    n = 3_000
    nodes = [
        Node(i, 2 * n - i, parent=i - 1 if i else None, true_root=i == 0, stage=cp.TOOL)
        for i in range(n)
    ]
    pieces = path(*nodes)
    assert len(pieces) == 2 * n - 1
    assert [p[0] for p in pieces] == [*range(n), *range(n - 2, -1, -1)]
    assert stage_times(pieces) == {"tool": 2 * n - 2, "other": 2}


def test_a_chain_of_three_thousand_folded_spans_lifts_to_the_root() -> None:
    n = 3_000
    nodes = [
        Node(0, 10, true_root=True),
        *(Node(0, 10, parent=i, role=cp.FOLDED) for i in range(n)),
        Node(2, 5, parent=n, stage=cp.TOOL),
    ]
    assert stage_times(path(*nodes)) == {"other": 7, "tool": 3}


def test_ten_thousand_children_share_their_parent() -> None:
    n = 10_000
    nodes = [
        Node(0, n, true_root=True),
        *(Node(i, i + 1, parent=0, stage=cp.TOOL) for i in range(n)),
    ]
    assert stage_times(path(*nodes)) == {"tool": n}
    assert [p[0] for p in path(*nodes)] == list(range(1, n + 1))


def test_ten_thousand_orphans_belong_to_the_root() -> None:
    # Too many to search the tightest span around each.
    n = 10_000
    nodes = [Node(0, n, true_root=True), *(Node(i, i + 1, stage=cp.TOOL) for i in range(n))]
    paths = critical_paths(forest(nodes))
    assert stage_times(pieces_of(paths)) == {"tool": n}
    assert paths.inferred.sum() == n


def test_a_ring_of_spans_has_a_root() -> None:
    n = 50
    nodes = [Node(i, 100 - i, parent=(i + 1) % n, stage=cp.TOOL) for i in range(n)]
    paths = critical_paths(forest(nodes))
    check_laws(paths, [nodes])
    assert paths.root.tolist() == [0]


def test_engine_times_larger_than_the_span_are_cut_at_its_end() -> None:
    nodes = [
        Node(
            0,
            100,
            true_root=True,
            role=cp.ENGINE,
            ttft=10**15,
            queue=10**15,
            prefill=10**15,
            decode=10**15,
        )
    ]
    assert stage_times(path(*nodes)) == {"queue": 100}
    nodes = [
        Node(0, 100, true_root=True, role=cp.ENGINE, ttft=80, queue=10, prefill=50, decode=10**15)
    ]
    assert stage_times(path(*nodes)) == {"other": 20, "queue": 10, "prefill": 50, "decode": 20}


def test_nothing_has_no_path() -> None:
    paths = critical_paths(forest())
    assert len(paths.root) == 0
    assert pieces_of(paths) == []


def test_codes_are_those_of_the_collector() -> None:
    for code, name in enumerate(stages.STAGES):
        assert getattr(cp, name.upper()) == code
    for code, name in enumerate(stages.ROLES):
        assert getattr(cp, name.upper()) == code
    assert len(stages.STAGES) == cp.STAGES


# --- by hand ---


def root(end: int, **more: Any) -> Node:
    return Node(0, end, true_root=True, kind=SERVER, role=cp.CONTAINER, **more)


def test_of_two_parallel_children_the_later_one_holds_the_time() -> None:
    # 0..10 root, 10..60 shorter tool, 10..90 longer retrieval, 90..100 root.
    nodes = root(100), Node(10, 60, 0, stage=cp.TOOL), Node(10, 90, 0, stage=cp.RETRIEVAL)
    assert path(*nodes) == [(0, cp.OTHER, 0, 10), (2, cp.RETRIEVAL, 10, 90), (0, cp.OTHER, 90, 100)]


def test_a_child_counts_up_to_the_start_of_a_later_sibling() -> None:
    nodes = root(100), Node(10, 60, 0, stage=cp.RETRIEVAL), Node(40, 90, 0, stage=cp.TOOL)
    assert path(*nodes) == [
        (0, cp.OTHER, 0, 10),
        (1, cp.RETRIEVAL, 10, 40),
        (2, cp.TOOL, 40, 90),
        (0, cp.OTHER, 90, 100),
    ]


def test_the_gap_between_client_and_engine_is_the_networks() -> None:
    nodes = (
        root(100),
        Node(5, 95, 0, role=cp.LLM, stage=cp.GENERATION, kind=CLIENT, ttft=50),
        Node(15, 85, 1, role=cp.ENGINE, kind=SERVER, ttft=40, queue=20, prefill=15, decode=30),
    )
    # Engine: 5 front end, 20 queue, 15 prefill, 30 decode = 70. The client's 10 + 10 around it are network.
    assert path(*nodes) == [
        (0, cp.OTHER, 0, 5),
        (1, cp.NETWORK, 5, 15),
        (2, cp.OTHER, 15, 20),
        (2, cp.QUEUE, 20, 40),
        (2, cp.PREFILL, 40, 55),
        (2, cp.DECODE, 55, 85),
        (1, cp.NETWORK, 85, 95),
        (0, cp.OTHER, 95, 100),
    ]


def test_a_call_seen_only_by_its_client_is_first_token_and_decode() -> None:
    nodes = root(100), Node(10, 90, 0, role=cp.LLM, stage=cp.GENERATION, ttft=30)
    assert path(*nodes) == [
        (0, cp.OTHER, 0, 10),
        (1, cp.FIRST_TOKEN, 10, 40),
        (1, cp.DECODE, 40, 90),
        (0, cp.OTHER, 90, 100),
    ]


def test_a_call_whose_first_token_nobody_saw_is_generation() -> None:
    assert stage_times(path(root(100), Node(10, 90, 0, role=cp.LLM, stage=cp.GENERATION))) == {
        "other": 20,
        "generation": 80,
    }


def test_an_engine_that_knows_no_prefill_leaves_the_time_before_the_first_token_unsplit() -> None:
    nodes = root(100), Node(0, 100, 0, role=cp.ENGINE, queue=10, ttft=60)
    assert stage_times(path(*nodes)) == {"queue": 10, "first_token": 50, "decode": 40}


def test_the_phases_of_an_engine_hold_its_time_and_its_attributes_none() -> None:
    # SGLang: time_in_model_prefill holds the queue too, so the spans are believed.
    nodes = (
        Node(0, 100, true_root=True, role=cp.ENGINE, ttft=60, prefill=55, decode=40),
        Node(0, 100, 0, role=cp.FOLDED),
        Node(2, 5, 1, role=cp.PHASE, stage=cp.PROMPT),
        Node(5, 40, 1, role=cp.PHASE, stage=cp.QUEUE),
        Node(40, 60, 1, role=cp.PHASE, stage=cp.PREFILL),
        Node(60, 98, 1, role=cp.PHASE, stage=cp.DECODE),
        Node(70, 80, 5, role=cp.FOLDED),
    )
    assert stage_times(path(*nodes)) == {
        "other": 4,
        "prompt": 3,
        "queue": 35,
        "prefill": 20,
        "decode": 38,
    }


def test_of_nested_model_calls_the_outer_one_is_a_container() -> None:
    nodes = (
        root(100),
        Node(10, 90, 0, role=cp.LLM, stage=cp.GENERATION, tokens=True, ttft=70),
        Node(20, 80, 1, role=cp.LLM, stage=cp.GENERATION, tokens=True, ttft=30),
    )
    assert stage_times(path(*nodes)) == {"other": 40, "first_token": 30, "decode": 30}


def test_of_nested_model_calls_the_one_that_knows_its_tokens_counts() -> None:
    nodes = (
        root(100),
        Node(10, 90, 0, role=cp.LLM, stage=cp.GENERATION, tokens=True, ttft=30),
        Node(12, 88, 1, role=cp.LLM, stage=cp.GENERATION),
    )
    paths = critical_paths(forest(nodes))
    assert stage_times(pieces_of(paths)) == {"other": 20, "first_token": 30, "decode": 50}
    assert paths.skipped.tolist() == [False, False, True]
    assert paths.call.tolist() == [-1, 1, 1]


def test_the_transport_of_a_model_call_is_part_of_the_call() -> None:
    nodes = (
        root(100),
        Node(10, 90, 0, role=cp.LLM, stage=cp.GENERATION, ttft=30),
        Node(12, 80, 1, stage=cp.NETWORK, kind=CLIENT),
    )
    assert stage_times(path(*nodes)) == {"other": 20, "first_token": 30, "decode": 50}


def test_steps_to_a_connection_inside_a_call_are_the_networks() -> None:
    root, call = (
        Node(0, 100, true_root=True, role=cp.CONTAINER),
        Node(0, 100, parent=0, role=cp.LLM, stage=cp.GENERATION, tokens=True, ttft=50),
    )
    transport = Node(0, 90, parent=1, stage=cp.NETWORK, kind=CLIENT)
    lookup, tls = (
        Node(0, 20, parent=2, role=cp.PHASE, stage=cp.NETWORK),
        Node(20, 30, parent=2, role=cp.PHASE, stage=cp.NETWORK),
    )
    assert stage_times(path(root, call, transport, lookup, tls)) == {
        "network": 30,
        "first_token": 20,
        "decode": 50,
    }


def test_steps_to_a_connection_of_a_search_are_retrieval() -> None:
    root, search = (
        Node(0, 100, true_root=True, role=cp.CONTAINER),
        Node(0, 100, parent=0, stage=cp.RETRIEVAL),
    )
    tls = Node(0, 40, parent=1, role=cp.PHASE, stage=cp.NETWORK)
    assert stage_times(path(root, search, tls)) == {"retrieval": 100}


def test_a_tool_inside_a_streaming_call_keeps_its_time() -> None:
    nodes = (
        root(100),
        Node(10, 90, 0, role=cp.LLM, stage=cp.GENERATION, ttft=30),
        Node(50, 70, 1, stage=cp.TOOL),
    )
    assert stage_times(path(*nodes)) == {"other": 20, "first_token": 30, "decode": 30, "tool": 20}


def test_a_database_write_is_post_before_and_after_the_model_call() -> None:
    nodes = (
        root(100),
        Node(10, 20, 0, role=cp.WRITE, stage=cp.POST),
        Node(20, 80, 0, role=cp.LLM, stage=cp.GENERATION),
        Node(85, 95, 0, role=cp.WRITE, stage=cp.POST),
    )
    assert stage_times(path(*nodes)) == {"other": 20, "generation": 60, "post": 20}


def test_a_database_write_inside_a_model_call_is_post() -> None:
    nodes = (
        root(100),
        Node(20, 80, 0, role=cp.LLM, stage=cp.GENERATION),
        Node(30, 50, 1, role=cp.WRITE, stage=cp.POST),
    )
    assert stage_times(path(*nodes)) == {"other": 40, "generation": 40, "post": 20}


def test_work_after_the_response_is_off_the_path() -> None:
    nodes = (
        root(100_000_000),
        Node(20_000_000, 80_000_000, 0, stage=cp.TOOL),
        Node(90_000_000, 300_000_000, 0, stage=cp.POST),
    )
    assert stage_times(path(*nodes)) == {"other": 40_000_000, "tool": 60_000_000}


def test_a_child_that_ends_a_little_late_is_clipped_and_stays() -> None:
    nodes = root(100_000_000), Node(20_000_000, 100_900_000, 0, stage=cp.TOOL)
    paths = critical_paths(forest(nodes))
    assert stage_times(pieces_of(paths)) == {"other": 20_000_000, "tool": 80_000_000}
    assert paths.clipped.tolist() == [False, True]


def test_what_outlives_a_parent_that_handed_it_on_is_the_next_ones() -> None:
    # An asynchronous workflow whose span ends after its first step: the second step and the model call go on in the request.
    nodes = (
        root(100),
        Node(0, 30, 0, role=cp.CONTAINER),
        Node(0, 28, 1, stage=cp.RETRIEVAL),
        Node(29, 60, 1, stage=cp.TOOL),
        Node(70, 95, 1, role=cp.LLM, stage=cp.GENERATION),
    )
    assert path(*nodes) == [
        (2, cp.RETRIEVAL, 0, 28),
        (1, cp.OTHER, 28, 29),
        (3, cp.TOOL, 29, 60),
        (0, cp.OTHER, 60, 70),
        (4, cp.GENERATION, 70, 95),
        (0, cp.OTHER, 95, 100),
    ]


def test_what_outlives_a_parent_while_something_else_goes_on_is_cut_at_its_end() -> None:
    # Sent off in the background while the request answers.
    nodes = (
        root(100),
        Node(0, 30, 0, stage=cp.TOOL),
        Node(20, 98, 1, stage=cp.POST),
        Node(30, 95, 0, role=cp.LLM, stage=cp.GENERATION),
    )
    assert path(*nodes) == [
        (1, cp.TOOL, 0, 20),
        (2, cp.POST, 20, 30),
        (3, cp.GENERATION, 30, 95),
        (0, cp.OTHER, 95, 100),
    ]


def test_a_guardrail_beside_the_generation_holds_no_time_unless_it_ends_last() -> None:
    call = Node(10, 90, 0, role=cp.LLM, stage=cp.GENERATION)
    assert stage_times(path(root(100), call, Node(15, 60, 0, stage=cp.GUARDRAIL))) == {
        "other": 20,
        "generation": 80,
    }
    assert stage_times(path(root(100), call, Node(15, 95, 0, stage=cp.GUARDRAIL))) == {
        "other": 15,
        "generation": 5,
        "guardrail": 80,
    }


def test_a_model_call_that_serves_a_guardrail_is_guardrail_time() -> None:
    nodes = (
        root(100),
        Node(10, 40, 0, stage=cp.GUARDRAIL),
        Node(15, 35, 1, role=cp.LLM, stage=cp.GENERATION, ttft=5),
        Node(50, 90, 0, role=cp.LLM, ttft=10),
    )
    assert stage_times(path(*nodes)) == {
        "other": 30,
        "guardrail": 30,
        "first_token": 10,
        "decode": 30,
    }


def test_the_network_call_of_a_retriever_is_retrieval() -> None:
    nodes = (
        root(100),
        Node(10, 60, 0, stage=cp.RETRIEVAL),
        Node(20, 50, 1, stage=cp.NETWORK, kind=CLIENT),
        Node(25, 45, 2, kind=SERVER, role=cp.CONTAINER, domain=1),
    )
    assert stage_times(path(*nodes)) == {"other": 50, "retrieval": 50}


def test_what_a_consumer_did_later_is_not_its_producers_stage() -> None:
    nodes = (
        root(100),
        Node(10, 20, 0, stage=cp.TOOL, kind=PRODUCER),
        Node(15, 30, 1, kind=CONSUMER, role=cp.CONTAINER),
    )
    pieces = path(*nodes)
    assert stage_times(pieces) == {"other": 95, "tool": 5}


def test_waiting_for_the_user_is_a_stage_of_its_own() -> None:
    nodes = root(100), Node(10, 60, 0, stage=cp.WAIT_USER), Node(20, 30, 1, stage=cp.OTHER)
    assert stage_times(path(*nodes))["wait_user"] == 40


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(-20, 20, (10, 50)), (70, 110, (50, 90)), (200, 240, (50, 90)), (-50, 150, (10, 90))],
)
def test_a_server_with_another_clock_is_moved_by_the_smallest_offset(
    start: int, end: int, expected: tuple[int, int]
) -> None:
    nodes = (
        root(100),
        Node(10, 90, 0, stage=cp.NETWORK, kind=CLIENT),
        Node(start, end, 1, stage=cp.TOOL, kind=SERVER, domain=1),
    )
    paths = critical_paths(forest(nodes))
    tool = [(f, t) for r, s, f, t in pieces_of(paths) if s == cp.TOOL]
    assert tool == [expected]
    assert paths.shifted.tolist() == [False, False, True]


@pytest.mark.parametrize("skew", [-500, 500])
@pytest.mark.parametrize(("ttft", "begins"), [(60, 40), (10, 0), (95, 50)])
def test_an_engine_with_another_clock_is_moved_to_the_first_token_that_its_client_saw(
    skew: int, ttft: int, begins: int
) -> None:
    root, call = (
        Node(0, 100, true_root=True, role=cp.CONTAINER),
        Node(0, 100, parent=0, role=cp.LLM, stage=cp.GENERATION, tokens=True, ttft=ttft),
    )
    engine = Node(
        skew, skew + 50, parent=1, role=cp.ENGINE, domain=1, ttft=20, queue=5, prefill=15, decode=30
    )
    paths = critical_paths(forest([root, call, engine]))
    assert (int(paths.start[2]), int(paths.end[2])) == (begins, begins + 50)


@pytest.mark.parametrize(("end", "on_path"), [(70, True), (79, True), (80, False), (90, False)])
def test_a_call_that_was_cancelled_once_another_had_answered_was_not_waited_for(
    end: int, on_path: bool
) -> None:
    nodes = root(100), Node(20, 80, 0, role=cp.LLM), Node(10, end, 0, role=cp.LLM, cancelled=True)
    assert any(r == 2 for r, *_ in path(*nodes)) == on_path
    assert not critical_paths(
        forest((root(100), Node(20, 80, 0, role=cp.LLM), Node(10, end, 0, role=cp.LLM)))
    ).skipped.any()


@pytest.mark.parametrize(
    ("end", "left", "expected"),
    [(100, False, (40, 90)), (100, True, (50, 90)), (140, False, (50, 90)), (140, True, (50, 90))],
)
def test_work_that_its_caller_did_not_wait_for_is_cut_where_the_caller_left(
    end: int, left: bool, expected: tuple[int, int]
) -> None:
    """It began within the call: what fits may have a wrong clock unless the call is known to have been given up; what is longer went on after it."""
    nodes = (
        root(100),
        Node(10, 90, 0, role=cp.LLM, kind=CLIENT),
        Node(50, end, 1, role=cp.ENGINE, kind=SERVER, domain=1, queue=10, prefill=5, left=left),
    )
    paths = critical_paths(forest(nodes))
    engine = [(f, t) for r, _, f, t in pieces_of(paths) if r == 2]
    assert (min(f for f, _ in engine), max(t for _, t in engine)) == expected
    assert paths.clipped[2] == (expected[0] == 50)


def test_what_shares_a_wrong_clock_moves_along() -> None:
    nodes = (
        root(100),
        Node(1010, 1030, 0, kind=SERVER, domain=1, role=cp.CONTAINER),
        Node(1015, 1025, 1, stage=cp.TOOL, domain=1),
    )
    assert stage_times(path(*nodes)) == {"other": 90, "tool": 10}


def test_an_orphan_goes_to_the_tightest_span_around_it() -> None:
    nodes = (
        root(100),
        Node(10, 90, 0, stage=cp.TOOL),
        Node(20, 60, 1, stage=cp.RETRIEVAL),
        Node(30, 50, stage=cp.PROMPT),
    )
    paths = critical_paths(forest(nodes))
    assert paths.parent.tolist() == [-1, 0, 1, 2]
    assert paths.inferred.tolist() == [False, False, False, True]
    assert stage_times(pieces_of(paths)) == {"other": 20, "tool": 40, "retrieval": 20, "prompt": 20}


def test_the_root_is_the_span_that_says_so() -> None:
    nodes = (
        Node(0, 500, stage=cp.TOOL),
        Node(10, 90, true_root=True, kind=SERVER, role=cp.CONTAINER),
    )
    assert critical_paths(forest(nodes)).root.tolist() == [1]


def test_of_two_engine_spans_the_one_that_ended_last_answered() -> None:
    nodes = (
        root(100),
        Node(0, 100, 0, role=cp.LLM),
        Node(5, 30, 1, role=cp.ENGINE, ttft=5, queue=0, prefill=5, decode=20),
        Node(50, 95, 1, role=cp.ENGINE, ttft=15, queue=5, prefill=10, decode=30),
    )
    paths = critical_paths(forest(nodes))
    assert paths.engine.tolist() == [-1, 3, -1, -1]
    assert stage_times(pieces_of(paths)) == {"network": 30, "prefill": 15, "decode": 50, "queue": 5}
