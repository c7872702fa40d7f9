"""What the sent spans and metrics mean, and what of them may be stored."""
