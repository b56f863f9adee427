"""Writing a report whole or not at all: its folder, and being asked to stop."""
