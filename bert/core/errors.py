"""Errors that a user can cause, each with the exit code that scripts and schedulers rely on."""


class UserError(ValueError):
    """An error that says in one line what is wrong, where, and how to fix it; `cli.main` exits with `exit_code`."""

    exit_code = 1


class UsageError(UserError):
    """The command line or the configuration is wrong."""

    exit_code = 2


class InputError(UserError):
    """An input file or folder is missing, empty or malformed."""

    exit_code = 3


class DamagedFile(InputError):
    """An input file that is cut or damaged."""


class IntegrityError(UserError):
    """A file written by an earlier stage, or downloaded, is damaged."""

    exit_code = 4


class ResourceError(UserError):
    """The disk or the memory is full."""

    exit_code = 5


class Stopped(UserError):
    """The run was asked to stop and saved its state; the same command resumes it."""

    exit_code = 75


def require(condition: bool, message: str) -> None:
    """Raise UsageError with this message unless the condition holds."""
    if not condition:
        raise UsageError(message)
