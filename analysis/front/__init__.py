"""Who asks, and in which form: commands, HTTP API, reports and pages."""
