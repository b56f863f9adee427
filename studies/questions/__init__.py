"""Questions to stored studies that one paper asks: properties, bands of pairs, repetitions."""
