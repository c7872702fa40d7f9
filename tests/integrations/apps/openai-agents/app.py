"""An agent with one tool, run to its end."""

from agents import Agent, Runner, function_tool


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


agent = Agent(name="Forecast", model="tiny", tools=[weather])
for _ in range(60):
    Runner.run_sync(agent, "How is the weather in Vienna?")
