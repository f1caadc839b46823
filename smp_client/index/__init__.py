"""The index: one SQLite file and three YAML files a session, all derived from the files of memories."""
