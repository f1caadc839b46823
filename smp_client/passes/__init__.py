"""What time does to sessions: each pass is a pure plan with reasons, and an apply."""
