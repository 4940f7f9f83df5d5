"""From one machine to many: the folder of a deployment, its certificates and keys, and Flower's processes around them.

Nothing here imports Flower. Its programs are started as anyone would start them from a shell, and each of their commands is
shown, so that whoever knows Flower can go on without polyfed.

- `certificates`, `keys`: who is who
- `layout`, `making`, `app_files`, `machine_files`: the folder, and all that is written into it
- `commands`, `processes`: Flower's programs
- `server`, `backoff`, `node`, `runs`: what `polyfed deploy` does with them
"""
