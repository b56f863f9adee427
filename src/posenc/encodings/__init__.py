"""One file, one encoding: its formula, its class, its card."""
