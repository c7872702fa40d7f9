"""How is a sampling probability written in a tracestate? As OpenTelemetry's rejection threshold of 56 bits (OTEP 235)."""


def threshold(probability: float) -> str:
    """`th:HEX` of a probability; empty if everything is kept, or it is none."""
    if not 1e-9 < probability < 1.0:
        return ""
    return f"th:{round((1.0 - probability) * 2**56):014x}".rstrip("0")
