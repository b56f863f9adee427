"""What everything else is made of: positions, encodings, masks, biases, frequencies."""
