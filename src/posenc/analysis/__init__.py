"""What encodings do to real text: pure functions on tensors, and `compare`, which runs them all."""
