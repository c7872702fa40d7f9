"""One fix, one file; found by listing this folder."""
