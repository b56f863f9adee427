"""The files of somebody's model, read strictly."""
