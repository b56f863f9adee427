"""General helpers: checks of arguments, names, text and files."""
