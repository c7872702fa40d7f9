"""An agent with one tool, run to its end."""

from pydantic_ai import Agent

agent = Agent("openai-chat:tiny", name="forecast")


@agent.tool_plain
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


for _ in range(60):
    agent.run_sync("How is the weather in Vienna?")
