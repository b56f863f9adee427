"""Tools for published models: read their positional encodings, measure, extend and convert them."""
