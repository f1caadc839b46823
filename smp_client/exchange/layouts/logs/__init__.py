"""Conversations that others keep as Markdown or text: who speaks, what they mark, and what is known of them already."""
