"""Real models: read what their files say of positions, measure it, extend and convert it."""
