"""Reports: tables on the terminal, figures, and one page that opens offline."""
