"""The parser that the manual page tslab(1) is made from: every command with its options."""

from __future__ import annotations

import argparse

from tslab.cli import build_parser
from tslab.commands import COMMANDS


def parser() -> argparse.ArgumentParser:
    return build_parser(whole=COMMANDS)
