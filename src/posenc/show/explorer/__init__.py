"""The explorer: a page that runs encodings, exported as graphs, in the browser."""
