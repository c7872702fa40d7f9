"""The collector's own process: compiled kernels, memory, logs, counters, spans."""
