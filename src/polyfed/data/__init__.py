"""What users bring: tasks, labels and features as they have them, turned into plain numbers.

Nothing in this room imports torch; tensors and pandas objects are recognised by what they can do.
"""

from polyfed.data.features import Features, FeatureScaler, as_features
from polyfed.data.labels import LabelCodec
from polyfed.data.task import KINDS, Task, as_tasks

__all__ = ["KINDS", "FeatureScaler", "Features", "LabelCodec", "Task", "as_features", "as_tasks"]
