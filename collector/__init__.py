"""Receives, normalises and stores telemetry; the only owner of the database and its schema."""
