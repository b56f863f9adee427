"""Entry point of `python -m posenc`, the same as the command `posenc`."""

from posenc.commands.cli import main

if __name__ == "__main__":
    main()
