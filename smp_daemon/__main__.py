"""`python -m smp_daemon`: the `smp` command of this interpreter, as a service starts it."""

from .cli import main

if __name__ == "__main__":
    main()
