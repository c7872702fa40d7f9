"""Which faults can be made, what is the right answer to each, and what would its fix do?

One entry per scenario: the world it strikes, what the fault turns (`amounts` are calibrated per severity so that the share of requests over the
limit after the onset comes near 30 %, 10 % and 3.5 %), which causes and stages are right, and the fixes whose effect is simulated for the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from overrun.sample_traces.simulator.settings import Settings

SEVERITIES: Final = ("easy", "medium", "hard")
BREACH: Final = {"easy": 0.30, "medium": 0.10, "hard": 0.035}
BANDS: Final = {"easy": (0.15, 0.6), "medium": (0.05, 0.15), "hard": (0.02, 0.05)}
"""Shares of requests over the limit after the onset that count as a severity."""
MODEL: Final = ("first_token", "decode", "generation")
"""Stages in which a client sees what goes on in a model server."""

Change = Callable[[Settings], Settings]
Fault = Callable[[Settings, float], Settings]


@dataclass(frozen=True)
class Fix:
    """A fix by its what-if's name and parameters, and what it does to the faulty world."""

    id: str
    parameters: dict[str, float | str]
    apply: Change


Fixes = Callable[[Settings, Settings], list[Fix]]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One fault. `causes` are all that must be named; `stages` holds every stage that is right, the main one first. The client's fields say the
    same for who sees no engine: any of `client_causes` is right there, and "none" means that naming no cause is."""

    id: str
    number: str
    title: str
    world: Settings
    slo: str
    fault: Fault
    amounts: tuple[float, float, float]
    bounds: tuple[float, float]
    """Between which calibration looks for the amounts."""
    causes: tuple[str, ...]
    stages: tuple[str, ...]
    client_causes: tuple[str, ...]
    client_stages: tuple[str, ...]
    accepted: tuple[str, ...] = ()
    """Other answers that are right, too, where the telemetry cannot tell more."""
    chain: tuple[str, ...] = ()
    """What follows from the cause and may be named behind it."""
    fixes: Fixes = lambda before, after: []
    chunk_events: bool = False
    alone: tuple[Fault, ...] = ()
    """Each of several faults on its own."""

    def amount(self, severity: str) -> float:
        """How strong the fault is."""
        return self.amounts[SEVERITIES.index(severity)]


def changed(settings: Settings, **changes: Any) -> Settings:
    """Settings with some knobs turned."""
    return replace(settings, **changes)


def turn(knob: str, **more: Any) -> Fault:
    """A fault that sets one knob to its amount, and others with it."""
    return lambda settings, amount: replace(settings, **{knob: amount, **more})


def undo(fix: str, *knobs: str, **parameters: float | str) -> Fixes:
    """The fix that puts some knobs back to where they stood. As `restore` it is only a truth: no what-if has its parameters."""

    def fixes(before: Settings, after: Settings) -> list[Fix]:
        old = {knob: getattr(before, knob) for knob in knobs}
        return [Fix(fix, parameters, lambda settings: replace(settings, **old))]

    return fixes


def set_to(fix: str, parameters: dict[str, float | str], **knobs: Any) -> Fixes:
    """The fix that sets some knobs."""
    return lambda before, after: [Fix(fix, parameters, lambda settings: replace(settings, **knobs))]


def twice_the_replicas(before: Settings, after: Settings) -> list[Fix]:
    """Scaling out."""
    wanted = after.replicas * 2
    return [
        Fix("replicas", {"replicas": wanted}, lambda settings: replace(settings, replicas=wanted))
    ]


RAG: Final = Settings()
RAG_SLO: Final = "ttft:1500 e2el:3000"
TIGHT: Final = Settings(max_num_seqs=8)
CHAT: Final = Settings(
    kind="chat",
    service="chat-api",
    route="/v1/chat",
    system_tokens=900,
    input_tokens=90.0,
    output_tokens=150.0,
    guard_ms=9.0,
    rate_rps=5.0,
)
CHAT_SLO: Final = "ttft:1000 e2el:6000"
AGENT: Final = Settings(
    kind="agent",
    service="support-agent",
    route="/agent/run",
    rate_rps=4.0,
    output_tokens=110.0,
    input_tokens=300.0,
)
AGENT_SLO: Final = "ttft:5000 e2el:9000"
HOSTED: Final = Settings(provider=True, service="assistant", route="/assist")
HOSTED_AGENT: Final = changed(AGENT, provider=True, service="research-agent")


@dataclass(frozen=True)
class Healthy:
    """A window in which nothing is wrong. `second` makes the second half's world of the first half's."""

    id: str
    title: str
    world: Settings
    slo: str
    second: Change = lambda settings: settings


HEALTHY: Final = {
    h.id: h
    for h in (
        Healthy("healthy", "Steady traffic", RAG, RAG_SLO),
        Healthy(
            "healthy_diurnal", "Traffic that swings by 30 %", changed(CHAT, diurnal=0.3), CHAT_SLO
        ),
        Healthy(
            "healthy_growth",
            "A third more users, inside capacity",
            RAG,
            RAG_SLO,
            lambda settings: changed(settings, growth=1.3),
        ),
        Healthy(
            "healthy_mix",
            "Another mix of routes, inside the limits",
            changed(RAG, other_route="/rag/short", other_share=0.45),
            RAG_SLO,
            lambda settings: changed(settings, other_share=0.2),
        ),
        Healthy(
            "healthy_bursts",
            "Bursts that the engines take",
            RAG,
            RAG_SLO,
            lambda settings: changed(settings, burst_every_s=30.0, burst_s=4.0, burst_factor=1.8),
        ),
        Healthy("healthy_hosted", "A provider that answers as ever", HOSTED, RAG_SLO),
        Healthy(
            "healthy_busy",
            "Engines at two thirds of their capacity, their users served in time",
            changed(TIGHT, growth=1.25),
            RAG_SLO,
        ),
        Healthy(
            "healthy_batch",
            "A nightly job beside the users",
            changed(RAG, batch_rps=0.1),
            "ttft:2000 e2el:3500",
        ),
        Healthy(
            "healthy_deploy",
            "A deploy that changes nothing",
            AGENT,
            AGENT_SLO,
            lambda settings: changed(settings, version="2.5.0"),
        ),
        Healthy("healthy_quiet", "Few users", changed(RAG, rate_rps=1.2), RAG_SLO),
        Healthy(
            "healthy_ramp",
            "A morning: traffic rises by half within ten minutes",
            changed(RAG, rate_rps=4.5, diurnal=0.5),
            RAG_SLO,
        ),
        Healthy(
            "healthy_evening",
            "Half of the users go home",
            changed(CHAT, growth=1.2),
            CHAT_SLO,
            lambda settings: changed(settings, growth=0.6),
        ),
        Healthy(
            "healthy_job_begins",
            "A nightly job begins beside the users",
            RAG,
            "ttft:2000 e2el:3500",
            lambda settings: changed(settings, batch_rps=0.08),
        ),
        Healthy(
            "healthy_two_deploys",
            "A deploy of a hosted assistant, and another mix of its routes",
            changed(HOSTED, other_route="/assist/short", other_share=0.2),
            RAG_SLO,
            lambda settings: changed(settings, version="2.5.0", other_share=0.35),
        ),
        Healthy(
            "healthy_leavers",
            "Some users leave before their answer is there, as ever",
            changed(CHAT, give_up_share=0.08, give_up_s=1.5),
            CHAT_SLO,
        ),
        Healthy(
            "healthy_longer",
            "Prompts and answers a tenth longer, with room for both",
            CHAT,
            CHAT_SLO,
            lambda settings: changed(settings, input_factor=1.1, output_factor=1.1),
        ),
    )
}
