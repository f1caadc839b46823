"""Memory for one agent or workflow: its context, its requirements, its party, a small interface."""
