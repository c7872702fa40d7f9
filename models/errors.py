"""What can go wrong in `models`, as one small tree.

Every message gives the value seen, the value wanted and the remedy, and none repeats prompt text.
"""


class ModelsError(Exception):
    """Anything this package refuses to do; the command line shows the message and exits 2."""


class SourceError(ModelsError):
    """A file or table of requests that cannot be read as one."""


class TooFewRowsError(ModelsError):
    """Too few usable requests to learn from, or to measure what was learned."""


class ArtifactError(ModelsError):
    """An artifact folder that is missing, damaged, of another schema, or answers differently than when written."""


class RequestError(ModelsError):
    """One request whose fields have the wrong type or an impossible value."""
