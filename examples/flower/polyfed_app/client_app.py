"""What a node does: all of it is in polyfed."""

from polyfed.flower.client_app import app

__all__ = ["app"]
