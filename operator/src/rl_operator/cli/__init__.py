"""`rlctl` (also installed as `kubectl-rl`): the same verbs on a cluster and on this machine."""

import io
import sys


def main() -> None:
    """The process: an error becomes one line on stderr and the contract's exit code."""
    try:
        _main()
    except KeyboardInterrupt:  # while the program was still loading, its exit codes perhaps too
        sys.exit(130)


def _main() -> None:
    from rl_operator.cli.app import app
    from rl_operator.cli.exits import exit_code_of
    from rl_operator.errors import OperatorError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal in latin-1 has no bars, and must not end us
    try:
        app()
    except OperatorError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(exit_code_of(error))
    except BrokenPipeError:  # the reader of a pipe (head, less) has seen enough
        sys.stderr.close()
        sys.exit(0)
