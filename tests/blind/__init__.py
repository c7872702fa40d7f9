"""The standing blind test: how good is the answer to incidents that nobody had described to the product? Inputs live elsewhere; their first looks are kept for ever."""
