"""What every answer of a question can do: be printed, be shown in a notebook, become a dictionary."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

import msgspec

from tokenyard.explain.html_table import escaped
from tokenyard.explain.table import RowTable


class Printable:
    """Mixed into answers, in front of ``msgspec.Struct``: ``print`` shows what the command line prints.

    ``repr`` is one line, so that an answer at the end of a cell or of a line in a terminal says what it is.
    """

    __slots__ = ()
    printer: ClassVar[str]
    """Prints it on a console: ``module:function``, loaded when it is printed."""

    def to_dict(self) -> dict[str, Any]:
        """All of it, as ``--json`` prints it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def summary(self) -> str:
        """What ``repr`` says besides the name of the class."""
        raise NotImplementedError

    def as_table(self) -> RowTable:
        """Its figures as a table, whose rows and columns the class names."""
        raise NotImplementedError

    def to_arrow(self) -> Any:
        """:meth:`as_table` as a ``pyarrow.Table``."""
        return self.as_table().to_arrow()

    def to_pandas(self) -> Any:
        """:meth:`as_table` as a ``pandas.DataFrame``."""
        return self.as_table().to_pandas()

    def to_polars(self) -> Any:
        """:meth:`as_table` as a ``polars.DataFrame``."""
        return self.as_table().to_polars()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def __str__(self) -> str:
        from tokenyard.explain.console import printed  # noqa: PLC0415 - rich is loaded where something is printed

        module, _, name = self.printer.partition(":")
        show = getattr(import_module(module), name)
        text: str = printed(lambda console: show(self, console))
        return text

    def _repr_html_(self) -> str:
        return f"<pre>{escaped(str(self))}</pre>"
