"""What lies in a run folder, and who may touch it: one schema for each document, a digest for all that is read back, and
one process at a time that writes.

| file               | what                                                                              |
|--------------------|-----------------------------------------------------------------------------------|
| `run.json`         | method, options, settings, versions: written last, so a folder with it is whole    |
| `prepared.json`, `prepared.safetensors` | what the federation agreed on, and the clients' coded data (private)     |
| `events.jsonl`     | what happened, the same for the same seed                                         |
| `timing.jsonl`     | when, and how long it took                                                        |
| `checkpoints/`     | states after the last rounds, each with the digest of the events until then       |
| `results.json`     | predictions on the test rows, latent functions, what was learned: for the report  |
| `late_clients.json`, `late_clients-*.safetensors` | late-joining clients, if there are any                                |
| `config.toml`      | the settings, for users to read and to change: the only one without a digest      |
| `run.log`          | for people; nothing reads it                                                      |
| `.lock`, `.late_clients.lock`, `.making` | while somebody writes; whether the folder is still being made              |

Reading order: `documents` (sealed JSON), `schemas`, `lines` (events), `lock`, `making`.
"""
