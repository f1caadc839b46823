"""What secrets and personal data look like, and what only looks like them."""
