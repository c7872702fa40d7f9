"""One module per page, each with `draw()`: get the filters, ask, place what comes back."""
