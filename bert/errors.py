"""Failures that a user can cause, each with the exit code that scripts and schedulers rely on."""


class UserError(ValueError):
    """What went wrong, where, and the remedy, in one line; `cli.main` prints it and exits with `exit_code`."""

    exit_code = 1


class UsageError(UserError):
    """The command line or the configuration is wrong."""

    exit_code = 2


class InputError(UserError):
    """A file or folder given by the user is missing, empty or malformed."""

    exit_code = 3


class IntegrityError(UserError):
    """Something written by an earlier stage, or fetched, is damaged."""

    exit_code = 4


class ResourceError(UserError):
    """The disk or the memory is exhausted."""

    exit_code = 5


class Stopped(UserError):
    """The run was asked to stop, saved its state, and goes on when the same command is given again."""

    exit_code = 75
