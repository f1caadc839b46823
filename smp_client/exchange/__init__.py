"""Memories on their way out of a tree and into one: export and import. Nothing here is imported before it is asked for."""
