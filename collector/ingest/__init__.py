"""From decoded bodies to committed rows and assembled requests."""
