"""The golden record: what every recording, corpus case, laboratory capture and simulated incident is answered, kept so that a refactoring shows each changed byte."""
