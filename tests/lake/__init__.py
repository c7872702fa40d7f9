"""A real PostgreSQL, and the processes of a lake over it. `checks/` runs in an environment with the lake's DuckDB (`make .venv/.lake`)."""
