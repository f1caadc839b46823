"""Files below a root: how they are read, written, locked and packed."""
