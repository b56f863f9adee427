"""Pages, figures and the explorer. No package below `posenc.show` imports it."""
