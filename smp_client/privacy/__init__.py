"""The memory belongs to the person it is about: what is secret or personal, what of it is kept, and how it is taken out again."""
