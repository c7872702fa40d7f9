"""Other tools' stores, asked over HTTP."""
