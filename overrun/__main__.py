"""`python -m overrun` is the `overrun` command."""

from overrun.cli import main

if __name__ == "__main__":
    main()
