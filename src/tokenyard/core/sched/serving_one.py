"""What a policy and a connector have in common: each serves one scheduler, and reads what it may know of it."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from tokenyard.errors import ConfigError, ConnectorError, PolicyError

Context = TypeVar("Context")


class ServesOne(Generic[Context]):
    """Serves one scheduler, which binds it before anything else.

    A seam says under which field it is given to a scheduler, and which error tells of its mistakes.
    """

    _field: ClassVar[str]
    _error: ClassVar[type[PolicyError | ConnectorError]]
    _context: Context | None = None

    def bind(self, context: Context) -> None:
        """Once, before anything else: the scheduler that it serves. ConfigError the second time.

        One that overrides this calls ``super().bind(context)`` first.
        """
        if self.is_bound:
            fix = "it serves another scheduler already: make one for each"
            raise ConfigError(self._field, type(self).__name__, fix)
        self._context = context

    @property
    def is_bound(self) -> bool:
        """Whether it serves a scheduler, so that :attr:`context` can be read."""
        return self._context is not None

    @property
    def context(self) -> Context:
        """What it knows of its scheduler, from :meth:`bind` on; PolicyError or ConnectorError before."""
        if self._context is None:
            problem = "is there once a scheduler is made: use it in the methods that it calls"
            raise self._error(self, "context", problem)
        return self._context

    @context.setter
    def context(self, context: Context | None) -> None:
        self._context = context
