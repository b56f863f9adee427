"""Train short, test long: tasks with lengths, and the statistics that a comparison needs."""
