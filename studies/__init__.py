"""Plans, stored results and findings of studies, and the scripts that write their pages."""
