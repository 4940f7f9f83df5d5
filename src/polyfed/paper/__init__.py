"""The paper's experiments, one preset each: from a TOML file to runs, tables and pictures beside the published figures.

Reading order: `presets` (what a preset is, and how it becomes runs), `measures` (a run becomes numbers), `records` (numbers
over seeds, ranks, published figures, tables), `pictures` and `reproduce` (what is put into the folder).
"""
