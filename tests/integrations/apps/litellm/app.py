"""Streamed calls through LiteLLM's SDK."""

import litellm

for _ in range(60):
    stream = litellm.completion(
        model="openai/tiny",
        messages=[{"role": "user", "content": "Where is my parcel?"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    for _chunk in stream:
        pass
