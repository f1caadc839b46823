"""Memories out of a tree and into one: exports, imports, and the layouts of other programs."""
