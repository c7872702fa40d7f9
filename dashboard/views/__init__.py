"""One module per page: get the filters, ask, place what comes back."""
