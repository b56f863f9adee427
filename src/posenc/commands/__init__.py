"""The command line: each command reads its arguments, calls the library, and shows the result."""
