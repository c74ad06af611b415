"""The errors of the library as exceptions: a class per status."""
from __future__ import annotations


class Error(Exception):
    """A call of the library that failed. Its text is the library's one line."""

    status = 1


class UsageError(Error, ValueError):
    """An option that does not exist, or a value out of range."""

    status = 2


class BadInputError(Error, ValueError):
    """A file, a text or a configuration that cannot be used as it is."""

    status = 3


class OutOfMemoryError(Error, MemoryError):
    """Not enough memory."""

    status = 4


class FileError(Error, OSError):
    """Reading, writing, locking or syncing failed."""

    status = 5


class NumericError(Error, ArithmeticError):
    """A loss, gradient or weight that is not finite."""

    status = 6


class DeviceError(Error, RuntimeError):
    """The requested device does not exist or failed."""

    status = 7


class Interrupted(Error):
    """Stopped on request. The text says which work is kept."""

    status = 75
