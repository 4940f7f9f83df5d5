"""The server's side as a Flower ServerApp: `app`. Its run config holds the study and the folder of the run."""

from __future__ import annotations

import logging

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from polyfed.errors import PolyfedError
from polyfed.flower import internals
from polyfed.flower.polls import PollingGrid
from polyfed.flower.serving import ServeConfig, serve

app = ServerApp()
log = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    try:
        serve_config = ServeConfig.from_run_config(context.run_config)
        internals.ask_soon(serve_config.timeouts.timeout)
        serve(PollingGrid(grid), serve_config)
    except PolyfedError as error:
        log.error("polyfed: %s", error)
        raise  # Flower calls a run failed only if its ServerApp raises
