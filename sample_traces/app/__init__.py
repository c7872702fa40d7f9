"""An instrumented RAG service to copy from: `python -m overrun.sample_traces.app.run --help`; `rag.py` is the part to read."""
