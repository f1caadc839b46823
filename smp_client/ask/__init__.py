"""What can be asked of the memories, how a question is read, and which of them answer it."""
