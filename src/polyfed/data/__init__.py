"""What users bring: tables, labels and features as they have them, turned into plain numbers, client by client.

Nothing in this room imports torch; tensors and pandas objects are recognised by what they can do.
"""

from polyfed.data.client import ClientData, FederationSpec
from polyfed.data.datasets import DATASETS, load_dataset
from polyfed.data.features.transforms import FeatureScaler
from polyfed.data.federation import Federation
from polyfed.data.labels.codec import LabelCodec
from polyfed.data.prepared import PreparedFederation
from polyfed.data.schema.client_summary import ClientSummary, describe
from polyfed.data.schema.coding import SCALINGS, ClientParts, Encoder
from polyfed.data.schema.limits import DEPLOYED, OPEN, Limits, Round0
from polyfed.data.schema.negotiation import Schema, agree
from polyfed.data.splits import Split
from polyfed.data.task import Task, as_tasks

__all__ = [
    "DATASETS",
    "DEPLOYED",
    "OPEN",
    "SCALINGS",
    "ClientData",
    "ClientParts",
    "ClientSummary",
    "Encoder",
    "FeatureScaler",
    "Federation",
    "FederationSpec",
    "LabelCodec",
    "Limits",
    "PreparedFederation",
    "Round0",
    "Schema",
    "Split",
    "Task",
    "agree",
    "as_tasks",
    "describe",
    "load_dataset",
]
