"""The pages in the browser: a client of a running server's /api/v1 that renders and never computes."""
