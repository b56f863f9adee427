"""Tables on the terminal, drawn with rich. Nothing is imported here: most modules need torch."""
