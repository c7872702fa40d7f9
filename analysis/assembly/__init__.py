"""How stored spans become requests and model calls."""
