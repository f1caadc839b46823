"""`smp run` under systemd: its unit, and the messages to systemd."""
