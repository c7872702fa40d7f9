"""Spans of one call or one request, brought together: one step a file, in the order of `assemble.STEPS`."""
