"""The limits of the platform, read from base/limits.h: LIMITS["JSON_BODY_BYTES"] is LIMIT_JSON_BODY_BYTES."""
import re

from tests.support import paths

with open(paths.source("base/limits.h"), encoding="utf-8") as header:
    LIMITS = {name: int(value) for name, value in re.findall(r"^#define LIMIT_(\w+) (\d+)\b", header.read(), re.MULTILINE)}
