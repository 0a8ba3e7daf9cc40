"""Entry point of `python -m bertsmith`; the console script `bertsmith` has the same."""

from bertsmith.app.cli.entry import main

if __name__ == "__main__":
    main()
