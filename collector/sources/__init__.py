"""Telemetry that is fetched rather than sent: files, load tests, metrics pages."""
