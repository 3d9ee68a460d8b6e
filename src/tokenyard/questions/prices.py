"""What GPUs cost for an hour, as texts and mappings say it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from tokenyard.errors import ConfigError
from tokenyard.models.gpus import named_gpu


def read_prices(given: Iterable[Iterable[str]]) -> dict[str, float]:
    """GPU -> price of an hour, of texts: ``h100=2.5``. Raises ConfigError."""
    prices: dict[str, float] = {}
    for part in (part for texts in given for text in texts for part in text.split(",")):
        name, _, number = part.partition("=")
        try:
            price = float(number)
        except ValueError:
            price = -1.0
        if not 0 <= price < inf:
            raise ConfigError("price", part, "give GPU=PRICE of an hour, for example h100=2.5")
        prices[named_gpu(name.strip()).name] = price
    return prices


def prices_of(price: Mapping[str, float] | None) -> dict[str, float]:
    """GPU -> price of an hour, of a mapping. Raises ConfigError."""
    if price is None:
        return {}
    if not isinstance(price, Mapping):
        raise ConfigError("price", price, 'give what each GPU costs for an hour: {"h100": 2.5}')
    try:
        return read_prices([[f"{gpu}={each}" for gpu, each in price.items()]])
    except ConfigError as error:
        raise ConfigError("price", error.value, error.marked_fix) from None
