"""What distinguishes slow requests from others? The open diagnosis from spans: place, regularity, changes, a name only where one fits, and advice that arithmetic allows."""
