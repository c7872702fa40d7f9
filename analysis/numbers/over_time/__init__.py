"""How did it run over time? One point per step."""
