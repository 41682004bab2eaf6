"""The failures of the platform, read from base/reasons.def: the tests have no second table."""
import collections
import re

from tests.support import paths

Reason = collections.namedtuple("Reason", "name status code retryable message")

_LINE = re.compile(r'^REASON\((\w+), (\d+), (\w+), (true|false), "([^"]*)"\)$', re.MULTILINE)


def load():
    """Name -> Reason."""
    with open(paths.source("base/reasons.def"), encoding="utf-8") as table:
        found = [Reason(name, int(status), code, retryable == "true", message)
                 for name, status, code, retryable, message in _LINE.findall(table.read())]
    if len(found) < 30:
        raise RuntimeError("base/reasons.def: only %d reasons were understood" % len(found))
    return {reason.name: reason for reason in found}


REASONS = load()
