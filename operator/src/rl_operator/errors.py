"""Errors by who must act: the retry follows from the type."""


class OperatorError(Exception):
    """Base of this package's errors. The message is one sentence for a person."""


class ConflictError(OperatorError):
    """Somebody else wrote first (409 on an update): read again and reconcile again, at once."""


class NameTakenError(OperatorError):
    """A child's name belongs to a stranger's object, or to one that is being deleted: wait, and say so."""


class GoneError(OperatorError):
    """The object is not there any more (404)."""


class TargetUnreachableError(OperatorError):
    """The API server (or the state folder) does not answer: try again later."""


class ForbiddenError(OperatorError):
    """The API server refuses the credentials or the verb (401, 403): a person must act."""


class UnauthenticatedError(OperatorError):
    """Whoever calls a door of ours has not said who they are, or nobody knows them."""


class BusyError(OperatorError):
    """Too many ask at once: try again in a few seconds."""


class InvalidError(OperatorError):
    """The API server refuses the object (400, 422): a person must act."""


class RefusedError(OperatorError):
    """What was asked makes no sense here: an unknown run, a run that is over, a missing key."""


class WaitTimeoutError(OperatorError):
    """The deadline that the caller set has passed."""
