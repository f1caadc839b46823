"""`python -m smp_daemon`: the `smp` command of this very interpreter, which is what a service starts."""

from .cli import main

if __name__ == "__main__":
    main()
