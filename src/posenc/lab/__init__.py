"""The laboratory: encodings compared, trained and timed."""
