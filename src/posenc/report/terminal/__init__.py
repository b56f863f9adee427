"""Tables on the terminal, drawn with rich. Nothing is imported here: its modules need torch."""
