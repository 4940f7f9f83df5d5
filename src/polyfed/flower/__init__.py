"""The same methods on Flower, for clients on many machines: `polyfed[flower]`.

| file          | what                                                                        |
|---------------|-----------------------------------------------------------------------------|
| `client_app`  | the ClientApp: describes its data, trains, evaluates                         |
| `node`        | what a client does and keeps, without a word of Flower                       |
| `server_app`  | the ServerApp: round 0, then rounds, with checkpoints in a run folder        |
| `strategy`    | a Flower Strategy that calls the method's own download and aggregate         |
| `grid`        | clients in this process, with every message through Flower's wire format     |
| `wire`        | arrays and notes as one record of a message                                  |
| `polls`       | how soon the server and the nodes ask again                                  |
| `warm`        | a node that speaks with the server itself; `worker` does its work             |
| `internals`   | all that is not Flower's documented interface                                |
| `deploy/`     | certificates, keys, and the processes of a real deployment                   |
"""

import os

from polyfed.errors import MissingExtraError

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

try:
    import flwr as _flwr  # noqa: F401
except ImportError:
    raise MissingExtraError("Flower is not installed", remedy="pip install 'polyfed[flower]'") from None
