"""From a file of settings to run folders: configs, one run, many runs beside each other.

Reading order: `config` (what can be set), `reading` (files, options and errors), `building` (settings become objects),
`running` (one folder), `comparing` (many), `tuning` (options that the validation rows choose).
"""
