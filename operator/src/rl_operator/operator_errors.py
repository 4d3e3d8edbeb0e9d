"""Errors by who must act: the type determines the retry."""


class OperatorError(Exception):
    """Base of this package's errors. The message is one sentence for the user."""


class ConflictError(OperatorError):
    """Another client wrote first (409 on an update): read again and reconcile again, at once."""


class NameTakenError(OperatorError):
    """A child's name belongs to an unrelated object, or to one that is being deleted: wait, and report it."""


class TemplateChangedError(OperatorError):
    """What a run was frozen as is not what its status has the hash of: make nothing from it, and report it."""


class GoneError(OperatorError):
    """The object no longer exists (404)."""


class TargetUnreachableError(OperatorError):
    """The API server (or the state folder) does not respond: retry later."""


class ForbiddenError(OperatorError):
    """The API server refuses the credentials or the verb (401, 403): the user must act."""


class UnauthenticatedError(OperatorError):
    """The caller of one of our endpoints has not identified itself, or is unknown."""


class BusyError(OperatorError):
    """Too many requests at once: retry in a few seconds."""


class InvalidError(OperatorError):
    """The API server rejects the object (400, 422): the user must act."""


class RefusedError(OperatorError):
    """The request makes no sense here: an unknown run, a run that is over, a missing key."""


class PodNeededError(OperatorError):
    """What is asked for takes a pod, which nobody has asked to start."""


class WaitTimeoutError(OperatorError):
    """The deadline that the caller set has passed."""
