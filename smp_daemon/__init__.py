"""The daemon that looks after a tree of sessions, and the `smp` command."""
