"""What people see: pages, figures, the explorer. Nothing below knows of it."""
