"""Subject tokens, minted here by themselves (contract §2): the tests trust no code of the platform for it."""
import base64
import hashlib
import hmac
import json
import time


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def sign(secret, message):
    return base64url(hmac.new(secret.encode("utf-8"), message.encode("ascii"), hashlib.sha256).digest())


def mint_claims(claims, secret, version="v1"):
    """A token over claims given as an object, or as text or bytes to be signed as they stand."""
    if isinstance(claims, dict):
        claims = json.dumps(claims, ensure_ascii=False, separators=(",", ":"))
    if isinstance(claims, str):
        claims = claims.encode("utf-8")
    message = version + "." + base64url(claims)
    return message + "." + sign(secret, message)


def mint(consumer, subject, secret, lifetime=300, now=None):
    """A token that is good for `lifetime` seconds from `now` (wall clock)."""
    expires = int(time.time() if now is None else now) + lifetime
    return mint_claims({"consumerId": consumer, "subjectId": subject, "exp": expires}, secret)
