"""Reports of results: terminal tables, figures, and one HTML page that opens offline."""
