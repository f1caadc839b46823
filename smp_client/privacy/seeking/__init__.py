"""Every place in which a text, or a memory, is kept."""
