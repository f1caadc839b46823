"""What time does to memories. Each pass is a plan, which decides and says why, and an apply, which decides nothing."""
