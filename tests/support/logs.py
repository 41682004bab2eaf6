"""The log of one program: read as it comes, checked, and waited on."""
import json
import threading
import time


class Log:
    """Lines of a stream. A line that is not one JSON object with time, level and event is kept as a fault: a program
    writes nothing else (a sanitizer's report is such a fault, too)."""

    def __init__(self, name, stream):
        self.name = name
        self.lines = []
        self.entries = []
        self.faults = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream):
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            entry = None
            try:
                entry = json.loads(line)
                good = isinstance(entry, dict) and {"time", "level", "event"} <= set(entry)
            except ValueError:
                good = False
            with self._changed:
                self.lines.append(line)
                if good:
                    self.entries.append(entry)
                else:
                    self.faults.append(line)
                self._changed.notify_all()
        stream.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def find(self, event, **fields):
        """The first entry of this event with these fields, or None."""
        with self._changed:
            return self._find(event, fields)

    def _find(self, event, fields):
        for entry in self.entries:
            if entry["event"] == event and all(entry.get(name) == value for name, value in fields.items()):
                return entry
        return None

    def wait(self, event, seconds, **fields):
        """Waits for an entry; None if it has not come in time or the program has closed its log."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                found = self._find(event, fields)
                left = deadline - time.monotonic()
                if found or self._closed or left <= 0:
                    return found
                self._changed.wait(left)

    def text(self):
        with self._changed:
            return "\n".join(self.lines)

    def join(self, seconds):
        self._thread.join(seconds)
