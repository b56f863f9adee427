"""What serves the CPU alone: attention by views that torch's CPU kernel reads, and sinks."""
