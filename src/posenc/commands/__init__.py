"""The command line: each command reads its arguments, calls the library, and prints the result."""
