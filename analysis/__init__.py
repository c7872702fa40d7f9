"""Numbers, verdict, findings and what-ifs over the collector's public views; pure functions on frames and arrays."""
