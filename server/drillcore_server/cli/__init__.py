"""The `drillcore` command."""

from drillcore_server.cli.main import main

__all__ = ["main"]
