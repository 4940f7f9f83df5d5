"""A study whose clients are all on this machine, run by the same apps as on many: `--engine flower-sim`.

What server and clients keep is below `<folder>/flower`; at the end all of it becomes a run folder like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from polyfed.data import OPEN, Federation
from polyfed.engine import storage
from polyfed.engine.checkpoints import Checkpoints
from polyfed.engine.events import EventLog, OnEvent, ignore
from polyfed.engine.rounds import FederationState
from polyfed.engine.run import Run
from polyfed.engine.simulate import load
from polyfed.errors import Interrupted, MissingExtraError, PolyfedError
from polyfed.experiments.building import build_federation, build_method, build_settings
from polyfed.experiments.config import Config
from polyfed.experiments.running import leaving_nothing, read_config, reject_used, resolved
from polyfed.experiments.toml_text import to_toml
from polyfed.flower.client_app import make_app
from polyfed.flower.grid import InProcessGrid
from polyfed.flower.node import folder_of
from polyfed.flower.own_config import OwnConfig
from polyfed.flower.serving import ServeConfig, serve
from polyfed.flower.strategy import Timeouts
from polyfed.folders.documents import read_content, read_document
from polyfed.folders.lines import TIMING_FILE
from polyfed.folders.lock import owned
from polyfed.folders.schemas import FlowerDocument
from polyfed.folders.writing import write
from polyfed.nets.permission import reject_code


def start(
    config: Config,
    folder: Path,
    where: str,
    *,
    engine: str = "flower-sim",
    on_event: OnEvent | None = None,
    command: Sequence[str] = (),
) -> Run:
    """Begin a run in a folder that is new or empty, and run it to its end."""
    reject_used(folder)
    method, settings = build_method(config, where), build_settings(config, where)
    federation = build_federation(config.data, where)
    federation.prepare(settings.seed)  # what is wrong with the data is said here, with names and rows
    with leaving_nothing(folder):
        write(folder / "config.toml", to_toml(resolved(config, method, federation, folder)).encode())
        return _run(config, folder, federation, engine, on_event or ignore, command)


def resume(
    folder: Path,
    rounds: int | None = None,
    *,
    engine: str = "flower-sim",
    on_event: OnEvent | None = None,
    command: Sequence[str] = (),
    allow_code: Collection[str] = (),
) -> Run:
    """Go on with a run that was cut off, until this many rounds are completed in all (by default as many as were asked for)."""
    with owned(folder):
        config = read_config(folder)
        images = {} if config.data.images is None else {"backbone": config.data.images.backbone}
        reject_code(config.method.options | images, allow_code, where=str(folder))
        if rounds is not None:
            config = config.model_copy(update={"run": config.run.model_copy(update={"rounds": rounds})})
        return _run(config, folder, build_federation(config.data, str(folder)), engine, on_event or ignore, command)


def _run(
    config: Config, folder: Path, federation: Federation, engine: str, on_event: OnEvent, command: Sequence[str]
) -> Run:
    below, n_clients = (folder / "flower").resolve(), len(federation)
    serve_config = ServeConfig(config, below / "server", Timeouts(nodes=n_clients, wait=60.0))
    states, data = below / "nodes", config.data.model_dump_json()
    # This process says where data and states of the clients are, and no message does.
    client_app = make_app(lambda given: OwnConfig(states, limits=OPEN, simulated=(data, int(given["partition-id"]))))
    flower_log = logging.getLogger("flwr")
    before = flower_log.level
    flower_log.setLevel(logging.ERROR)  # Flower logs every round on stderr; the progress bar does so already
    try:
        if engine == "flower-ray":
            server_run = _on_ray(serve_config, client_app, n_clients, on_event)
        else:
            grid = InProcessGrid(client_app, [{"partition-id": i} for i in range(n_clients)])
            server_run = serve(grid, serve_config, on_event)
    except KeyboardInterrupt:
        how = f"go on with: polyfed run --resume {folder} --engine {engine}"
        raise Interrupted("stopped; the rounds until now are stored", where=folder, remedy=how) from None
    finally:
        flower_log.setLevel(before)
    # The run with the data and the states of its clients, which in a simulation are within reach.
    about, reached = read_document(serve_config.folder / "flower.json", FlowerDocument), server_run.federation_state
    found = {}
    for client, mark in reached.clients.items():
        kept = Checkpoints(folder_of(states, about["study"], client) / "states").read(int(mark["round"]))
        found[client] = kept.federation_state.clients[client]
    log = EventLog()
    log.rewrite(server_run.events)
    settings, together = server_run.settings, FederationState(reached.round, reached.server, found)
    run = Run(server_run.method, federation.prepare(settings.seed), settings, federation_state=together, log=log)
    run.command = list(command) or None
    storage.create(run, folder)
    write(folder / TIMING_FILE, read_content(serve_config.folder / TIMING_FILE))
    run.write_results(folder)
    return load(folder, method=server_run.method)


def _on_ray(serve_config: ServeConfig, client_app: ClientApp, n_clients: int, on_event: OnEvent) -> Run:
    """On Flower's own simulation, with Ray's processes for the clients."""
    try:
        import ray as _ray  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        remedy = "pip install 'flwr[simulation]', or flower-sim"
        raise MissingExtraError("Ray is not installed", where="--engine flower-ray", remedy=remedy) from None
    from flwr.simulation import run_simulation

    server, done, failed = ServerApp(), list[Run](), list[PolyfedError]()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            done.append(serve(grid, serve_config, on_event))
        except PolyfedError as error:  # Flower would say only that the simulation failed
            failed.append(error)

    run_simulation(server, client_app, n_clients, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
    if failed:
        raise failed[0]
    if not done:
        raise PolyfedError("Flower's simulation ended without a result", where=serve_config.folder)
    return done[0]
