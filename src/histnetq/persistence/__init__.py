"""Model directories: data that runs nothing when it is read."""
