"""The database file: its schema, views and queries, and how rows lie in it."""
