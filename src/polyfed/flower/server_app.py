"""The server of a study: round 0, or the folder of a run that stopped, then rounds until the last. `app` is the ServerApp that
does so; its run config holds the study and the folder of the run."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from polyfed.errors import PolyfedError
from polyfed.flower import internals
from polyfed.flower.polls import polling
from polyfed.flower.serving import ServeConfig, log, serve

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    try:
        serve_config = ServeConfig.from_run_config(context.run_config)
        internals.ask_soon(serve_config.timeouts.timeout)
        serve(polling(grid), serve_config)
    except PolyfedError as error:
        log.error("polyfed: %s", error)
        raise  # Flower calls a run failed only if its ServerApp raises
