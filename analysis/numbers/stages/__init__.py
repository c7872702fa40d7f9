"""Which stage took the time? Budgets, the tail, and what each stage is responsible for."""
