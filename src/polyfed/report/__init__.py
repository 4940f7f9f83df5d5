"""What a run looks like: a report in one HTML file, and a page that follows a run while it goes on.

Both are made from run folders alone; neither needs torch, the models or the network.

    write_report([Path("runs/a"), Path("runs/b")], Path("report.html"))
    serve(Path("runs/a"))                       # http://127.0.0.1:8765 until Ctrl-C
"""

from polyfed.report.document import write_report
from polyfed.report.live import serve

__all__ = ["serve", "write_report"]
