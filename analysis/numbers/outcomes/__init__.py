"""What came of the requests? Goodput, failures, burn rate and cost."""
