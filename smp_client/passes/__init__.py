"""The passes over sessions: each is a pure plan with reasons, and an apply."""
