"""The explorer: encodings exported as graphs, and what runs them in a browser."""
