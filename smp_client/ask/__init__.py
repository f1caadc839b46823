"""Questions: how they are read, which memories answer them, and in which order."""
