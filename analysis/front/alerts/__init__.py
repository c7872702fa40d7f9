"""Who is woken, when and with which words: conditions of a report become incidents, and incidents messages that arrive."""
