"""Questions over hourly files that no server holds: weeks of them, answered by DuckDB here or by a Spark cluster."""
