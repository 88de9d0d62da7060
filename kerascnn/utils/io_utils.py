"""Messages on standard output, or in Python's `logging` if that was requested."""

from __future__ import annotations

import logging
import sys
from typing import Any

from kerascnn import config
from kerascnn.distribution import replicas


def print_msg(message: Any, line_break: bool = True) -> None:
    """Shows a message; see `config.disable_interactive_logging`.

    Where several processes train one model, the first one shows it.

    Args:
        message: What to show.
        line_break: Whether to end the line.

    Example:

    >>> from kerascnn.utils.io_utils import print_msg
    >>> print_msg("Epoch 1: early stopping")
    Epoch 1: early stopping
    """
    if not replicas.is_first():
        return
    text = str(message)
    if not config.is_interactive_logging_enabled():
        logging.getLogger("kerascnn").info(text)
        return
    if line_break:
        text += "\n"
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # this console cannot show the lines of bars and tables
        encoding = sys.stdout.encoding or "ascii"
        plain = text.replace("━", "=")
        sys.stdout.write(plain.encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()
