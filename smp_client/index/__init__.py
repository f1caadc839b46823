"""The index of the files: one SQLite database, and YAML for people. All of it is derived."""
