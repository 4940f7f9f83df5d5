"""`polyfed` with the faulty app in its workers: a node runs no app that a server sends, so the faults come with the node."""

import sys

from polyfed.cli import main
from polyfed.flower import worker

if __name__ == "__main__":
    worker.APP = "faulty_app:app"
    sys.exit(main(sys.argv[1:]))
