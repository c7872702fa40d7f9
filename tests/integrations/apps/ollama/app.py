"""Streamed calls of Ollama's client."""

import ollama

for _ in range(60):
    for _chunk in ollama.chat(
        model="tiny", messages=[{"role": "user", "content": "Where is my parcel?"}], stream=True
    ):
        pass
