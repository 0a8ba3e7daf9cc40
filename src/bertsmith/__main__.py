"""Entry point of `python -m bertsmith` and of the console script `bertsmith`."""

from bertsmith.cli.app import main

if __name__ == "__main__":
    main()
