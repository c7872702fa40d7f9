"""A chat endpoint that streams from a provider."""

from fastapi import FastAPI
from openai import AsyncOpenAI

app = FastAPI()
client = AsyncOpenAI()


@app.get("/ask")
async def ask(question: str) -> str:
    """The whole answer, streamed by the provider."""
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": question}],
        stream=True,
        stream_options={"include_usage": True},
    )
    parts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    return "".join(parts)
