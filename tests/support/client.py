"""What a call of the platform comes back with, the same for HTTP and gRPC, and what every answer must obey."""
import collections
import re

from tests.support.reasons import REASONS

Lease = collections.namedtuple("Lease", "id pool status created expires last_used")  # times: nanoseconds since 1970
Execution = collections.namedtuple("Execution", "stdout stderr code")  # stdout and stderr: str

LEASE_ID = re.compile(r"\Alease-[0-9a-f]{32}\Z")


class Broken(Exception):
    """The connection broke before a whole answer came."""


class Rule(AssertionError):
    """An answer breaks a rule that all answers must obey."""


class Answer:
    """One answer.

    reason    the failure's name, or None on success
    message   the failure's text
    value     what succeeded: a dict with `lease`, `replayed`, `leases`, `cursor`, `execution`, `content`
    raw       the bytes of the answer that two callers could compare: the JSON body without its request id, or the
              serialised message, or the serialised status
    """

    def __init__(self, reason=None, message="", value=None, raw=b"", detail=None):
        self.reason = reason
        self.message = message
        self.value = value or {}
        self.raw = raw
        self.detail = detail

    @property
    def lease(self):
        return self.value["lease"]

    @property
    def execution(self):
        return self.value["execution"]

    @property
    def content(self):
        return self.value["content"]

    def __repr__(self):
        if self.reason:
            return "<%s: %s>" % (self.reason, self.message)
        return "<success: %.300r>" % (self.value,)


def known(reason):
    if reason not in REASONS:
        raise Rule("%r is no reason of base/reasons.def" % (reason,))
    return REASONS[reason]


def checked_lease(lease):
    if not LEASE_ID.match(lease.id):
        raise Rule("Lease id %r" % lease.id)
    if lease.status not in ("active", "released", "expired"):
        raise Rule("Lease status %r" % lease.status)
    if not lease.created <= lease.last_used or not lease.created < lease.expires:
        raise Rule("times of %r" % (lease,))
    return lease
