"""Which clients may send and read, and over which encrypted connection."""
