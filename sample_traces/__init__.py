"""Recorded scenarios, the simulator that made them, and an instrumented demo app; imports nothing of ours."""
