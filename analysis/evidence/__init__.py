"""The measured facts that rules rest on, each computed once."""
