"""Telemetry that another tool has stored already, read through its API: nothing is written there, and nothing is installed."""
