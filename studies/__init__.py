"""Plans, stores and findings of studies, with the scripts that write their pages."""
