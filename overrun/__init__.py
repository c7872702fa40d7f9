"""Overrun: which stage of an LLM application overran the latency budget, why, and what each fix would buy."""

__version__ = "0.1.0"
