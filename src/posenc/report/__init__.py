"""What people look at: tables on the terminal, figures, one page that opens offline."""
