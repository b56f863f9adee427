"""Real models: what their files say of positions, and what can be done about it."""
