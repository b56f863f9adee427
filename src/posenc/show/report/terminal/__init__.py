"""Tables on the terminal, drawn with rich. This file imports nothing: most modules need torch."""
