"""An agent with one tool, as a graph; its model streams."""

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


agent = create_agent(ChatOpenAI(model="tiny", streaming=True, stream_usage=True), [weather])
for _ in range(60):
    agent.invoke({"messages": [{"role": "user", "content": "How is the weather in Vienna?"}]})
