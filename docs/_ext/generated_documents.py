"""Pages of the reference about what other programs read: events, run folders, documents of commands, errors."""

from __future__ import annotations

from typing import Any

from generated_tables import code, sentence, table


def documents_page() -> str:
    """What commands print with --json, and what a run folder holds."""
    from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
    from polyfed.cli.documents import DOCUMENTS
    from polyfed.folders import results_file, schemas

    text = [
        "# Events and documents",
        "All that other programs read, made from the models that write or check it. `polyfed schema COMMAND` prints the JSON "
        "schema of a command's document. Numbers that do not exist are `null`.",
        "## Events",
        "`events.jsonl` of a run folder has one JSON object a line, and is the same for every run of a seed. A program that "
        "follows a run reads new lines as they come. Unknown keys are to be ignored: later versions may have more.",
    ]
    for name, model in schemas.EVENTS.items():
        text += [f"### {name}", _model(model)]
    text += ["## Files of a run folder"]
    for title, model in {
        "run.json": schemas.RunDocument,
        "prepared.json": schemas.PreparedDocument,
        "results.json": results_file.ResultsDocument,
        "checkpoints": schemas.CheckpointDocument,
        "late_clients.json": schemas.LateClientsDocument,
        "timing.jsonl": schemas.TimingEntry,
    }.items():
        text += [f"### {title}", sentence(model.__doc__) if model.__doc__ else "", _model(model)]
    text += ["## What commands print with --json"]
    for name, model in {**DOCUMENTS, **DEPLOY_DOCUMENTS}.items():
        text += [f"### {name}", " ".join((model.__doc__ or "").split()), _model(model)]
    return "\n\n".join(text)


def _model(model: Any) -> str:
    schema = model.model_json_schema()
    required = schema.get("required", [])
    rows = [[code(key), _shape(value), "yes" if key in required else ""] for key, value in schema["properties"].items()]
    return table(["key", "JSON", "always there"], rows)


def _shape(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shape(part) for part in schema["anyOf"]))
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_shape(schema['items'])}" if "items" in schema else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"name → {_shape(schema['additionalProperties'])}"
    return kind


def errors_page() -> str:
    """Errors and exit codes."""
    from polyfed import errors

    family = [errors.PolyfedError, *_below(errors.PolyfedError)]
    rows = [
        [f"`{made.__name__}`", made.exit_code, sentence(made.__doc__)]
        for made in family
        if made.__module__ == "polyfed.errors"
    ]
    return "\n\n".join(
        [
            "# Errors and exit codes",
            "Every error says the value, the place and the remedy in one sentence; a command prints that sentence and ends "
            "with the code of its class. [Troubleshooting](../../troubleshooting.md) goes by the text.",
            table(["class", "exit code", "when"], rows),
        ]
    )


def _below(made: type) -> list[Any]:
    return [found for child in made.__subclasses__() for found in (child, *_below(child))]
