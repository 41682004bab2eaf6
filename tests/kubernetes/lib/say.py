"""Messages to whoever runs the programs, and the one exception that ends them with a message instead of a trace."""

import sys
import time

STARTED = time.monotonic()


class Failure(Exception):
    """Something that the user can understand and act upon; its text says what."""


def say(text):
    """Progress, with the seconds since the program began. On stderr: stdout belongs to what a command was asked for."""
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


def run_program(main):
    """Runs main() and turns what went wrong into a message and an exit code."""
    try:
        sys.exit(main())
    except Failure as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
