"""The errors that a person can cause, and an exit status for each kind."""


class LabError(Exception):
    """The command cannot do this run; the message says what to do about it."""

    exit_code = 2


class Refused(LabError):
    """A measurement under a wrong name: of another allocator, an unread setting, or a path that no call reaches."""

    exit_code = 3


class NotServed(Refused):
    """The allocator named for a run did not serve the program's calls."""

    exit_code = 4


class Unreadable(LabError):
    """Figures that do not exist, or that fail a check."""

    exit_code = 5
