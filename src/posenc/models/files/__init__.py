"""The files of a model, read strictly: any of them may be hostile."""
