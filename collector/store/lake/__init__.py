"""A store for many writers and readers: Parquet files in a folder or an object store, listed by a PostgreSQL database (DuckLake)."""
