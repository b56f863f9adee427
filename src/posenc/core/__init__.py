"""Basic parts of the library: positions, encodings, masks, biases, frequencies."""
