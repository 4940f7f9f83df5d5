"""What users bring: tables, labels and features as they have them, turned into plain numbers, client by client.

Nothing in this room imports torch; tensors and pandas objects are recognised by what they can do.
"""

from polyfed.data.client import ClientData, FederationSpec
from polyfed.data.datasets import DATASETS, load_dataset
from polyfed.data.features.matrix import Features, as_features
from polyfed.data.features.scaling import FeatureScaler
from polyfed.data.federation import Federation
from polyfed.data.labels.codec import LabelCodec
from polyfed.data.schema.agreement import Agreement, agree
from polyfed.data.schema.coding import SCALINGS, ClientParts
from polyfed.data.schema.description import Description, describe
from polyfed.data.schema.encoder import Encoder
from polyfed.data.schema.limits import DEPLOYED, OPEN, Limits
from polyfed.data.schema.round0 import Round0
from polyfed.data.splits import Split
from polyfed.data.study import Study
from polyfed.data.task import Task, as_tasks

__all__ = [
    "DATASETS",
    "DEPLOYED",
    "OPEN",
    "SCALINGS",
    "Agreement",
    "ClientData",
    "ClientParts",
    "Description",
    "Encoder",
    "FeatureScaler",
    "Features",
    "Federation",
    "FederationSpec",
    "LabelCodec",
    "Limits",
    "Round0",
    "Split",
    "Study",
    "Task",
    "agree",
    "as_features",
    "as_tasks",
    "describe",
    "load_dataset",
]
