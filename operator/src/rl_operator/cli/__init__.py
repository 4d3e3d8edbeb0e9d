"""`rlctl` (also installed as `kubectl-rl`): the same verbs on a cluster and on this machine."""

import errno
import io
import os
import sys


def main() -> None:
    """The process: an error becomes one line on stderr and the contract's exit code."""
    try:
        _main()
    except KeyboardInterrupt:  # while the program was still loading, its exit codes perhaps too
        sys.exit(130)


def _main() -> None:
    from rl_operator.cli.app import app
    from rl_operator.cli.exits import CommandExit, exit_code_of
    from rl_operator.operator_errors import OperatorError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal in latin-1 has no bars, and must not end us
    try:
        app()
    except OperatorError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(exit_code_of(error))
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # the reader of a pipe (head, less) has seen enough
            sys.exit(CommandExit.OK)
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # at its end Python tries to write the rest
        sys.stderr.write(f"error: cannot write, so what was printed may be incomplete: {error.strerror}\n")
        sys.exit(CommandExit.REFUSED)
