"""The explorer: a page that computes encodings in the browser, from exported graphs."""
