"""Plans, stores and findings of studies, and the scripts that write their pages."""
