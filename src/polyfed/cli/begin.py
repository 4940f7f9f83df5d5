"""`polyfed examples` and `polyfed init`: the tables of the documentation as files, and a config file for a table of yours."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

from polyfed.cli.arguments import QUERY, TABLE, AsJson, argument, option, reject_no_folder, write_out
from polyfed.cli.output import emit, say, show_table
from polyfed.errors import UsageError
from polyfed.files import SHOWN, write_whole

TABLES = {
    "hospitals.csv": "five made-up hospitals, three targets, gaps",
    "new_patients.csv": "new patients, to predict",
    "lugano.csv": "a hospital that joins later",
}


def examples(folder: Annotated[Path, argument("Where they are written.")] = Path("examples")) -> None:
    """Write the tables that the documentation uses into a folder."""
    for name in TABLES:
        path = folder / name
        if path.exists() and (not path.is_file() or path.read_bytes() != _content(name)):
            raise UsageError("another file of this name is there", where=path, remedy="name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, what in TABLES.items():
        write_whole(folder / name, _content(name), SHOWN)
        say(f"{folder / name}: {what}")


def _content(name: str) -> bytes:
    """A table as the wheel brings it; in a clone it lies in `examples`."""
    brought = files("polyfed") / "examples" / name
    return brought.read_bytes() if brought.is_file() else (Path(__file__).parents[3] / "examples" / name).read_bytes()


def init(
    data: Annotated[str, argument(TABLE, "DATA")],
    out: Annotated[Path, option("The file to write.", "FILE")] = Path("polyfed.toml"),
    query: Annotated[str | None, option(QUERY, "SQL")] = None,
    json: AsJson = False,
) -> None:
    """Write a commented config file for a table: guesses the client column and the kinds of the targets."""
    from polyfed.cli.documents import GuessDocument, InitDocument
    from polyfed.experiments.guessing import guess
    from polyfed.experiments.toml_text import config_text

    if out.exists():
        raise UsageError("is there already", where=out, remedy="remove it, or choose another --out")
    reject_no_folder(out)
    found, remarks = guess(data, query)
    write_out(out, config_text(found, data, out, query).encode())
    if json:
        guesses = [GuessDocument(**vars(guess)) for guess in found]
        client = next((guess.column for guess in found if guess.role == "client"), None)
        return emit(InitDocument(out=str(out), client=client, guesses=guesses, remarks=remarks))
    rows = [[g.column, g.role, g.why] for g in found]
    show_table(f"What {data} seems to hold", ["column", "guess", "why"], rows, left=3)
    for remark in remarks:
        say(remark)
    say(f"Correct the guesses in {out}, then: polyfed run {out}")
