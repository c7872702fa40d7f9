"""A laboratory with real inference servers on CPU cores: real faults, real fixes, measured by the client."""
