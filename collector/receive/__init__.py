"""The collector's ports: OTLP over HTTP and gRPC, erasure, health."""
