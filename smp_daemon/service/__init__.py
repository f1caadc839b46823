"""`smp run` under systemd or launchd: its service file, and the messages to systemd."""
