"""`python -m posenc` is `posenc`."""

from posenc.commands.cli import main

if __name__ == "__main__":
    main()
