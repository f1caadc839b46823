"""Running `smp run` under systemd or launchd: the files that describe it, putting them in place, and talking to systemd."""
