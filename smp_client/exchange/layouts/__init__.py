"""The layouts of other programs: each module reads one, and three of them are written too."""
