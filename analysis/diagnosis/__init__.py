"""Why the budget was broken: rules, their ranking, the verdict."""
