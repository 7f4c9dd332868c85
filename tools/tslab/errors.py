"""The errors that a person can cause, and the exit status that tells a script which kind it was."""


class LabError(Exception):
    """A run that cannot be done as asked; the message says what to do about it."""

    exit_code = 2


class Refused(LabError):
    """A measurement that would not mean what its name says: another allocator, an unread knob, an unreached path."""

    exit_code = 3


class NotServed(Refused):
    """The allocator named for a run did not serve the program's calls."""

    exit_code = 4


class Unreadable(LabError):
    """Figures that are not there, or not to be trusted."""

    exit_code = 5
