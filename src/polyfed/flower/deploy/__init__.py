"""From one machine to many: the folder of a deployment, its certificates and keys, and Flower's processes around them.

Nothing here needs Flower to be imported but a warm node. Its programs are started as anyone would start them from a shell,
and each of their commands is shown, so that whoever knows Flower can go on without polyfed.

- `certificates`: who is who
- `layout`, `making`, `texts`: the folder, and all that is written into it
- `commands`, `processes`: Flower's programs
- `server`, `node`, `restarts`, `runs`, `checkup`: what `polyfed deploy` does with them
"""
