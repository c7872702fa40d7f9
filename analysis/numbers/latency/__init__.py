"""How long did requests and calls take? Percentiles with intervals, from requests or from engine histograms."""
