"""Bytes as they arrive, read into columns; no meaning yet."""
