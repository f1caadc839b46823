"""Secrets and personal data in texts: found by their shape, and replaced by placeholders."""
