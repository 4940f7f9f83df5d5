"""What the server does: all of it is in polyfed."""

from polyfed.flower.server_app import app

__all__ = ["app"]
