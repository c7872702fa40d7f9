"""A chat endpoint that calls a provider."""

from flask import Flask, request
from openai import OpenAI

app = Flask(__name__)
client = OpenAI()


@app.get("/ask/<customer>")
def ask(customer: str) -> str:
    """The whole answer, streamed by the provider."""
    stream = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": request.args["question"]}],
        stream=True,
        stream_options={"include_usage": True},
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
