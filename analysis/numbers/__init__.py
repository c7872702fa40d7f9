"""What happened in a window: exact figures with their intervals."""
