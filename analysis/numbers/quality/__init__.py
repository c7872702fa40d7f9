"""Can the numbers be trusted? Checks of the telemetry itself."""
