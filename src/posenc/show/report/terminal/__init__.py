"""Tables on the terminal, drawn with rich. This file imports nothing, so torch is not loaded."""
