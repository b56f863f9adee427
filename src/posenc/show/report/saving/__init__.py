"""Write a report whole or not at all: its folder, and signals that ask the process to stop."""
