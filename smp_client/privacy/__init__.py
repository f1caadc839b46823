"""Privacy: anonymising, finding every place of a text, and leaks in edited files."""
