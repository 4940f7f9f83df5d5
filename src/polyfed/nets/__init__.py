"""Networks as functions of flat parameters: trunks that tasks may share, and a head for each task."""

from polyfed.nets.network import Network
from polyfed.nets.trunks import ACTIVATIONS, SideBySide, n_outputs_of, started, trunk_of

__all__ = ["ACTIVATIONS", "Network", "SideBySide", "n_outputs_of", "started", "trunk_of"]
