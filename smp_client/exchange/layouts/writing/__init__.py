"""A tree as one of the three JSON layouts."""
