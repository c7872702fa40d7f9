"""What becomes of stored telemetry later: rollups, retention, erasure, migration."""
