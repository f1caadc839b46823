"""The configuration: every setting is described once, and read from one file."""
