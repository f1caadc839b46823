"""Placeholders for names, the same for the same, in a tree or in what leaves it."""
