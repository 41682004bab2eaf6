"""Contract §2: which Subject tokens are accepted, and that every refusal is the same answer."""
import base64
import json
import time

from tests.support import cases, platform, tokens
from tests.support.cases import Cases, over

SECRET = platform.SECRETS["alpha"]
SMILES = "\U0001F600" * 200


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


def claims(**changes):
    found = {"consumerId": "alpha", "subjectId": "someone", "exp": int(time.time()) + 200}
    found.update(changes)
    return {name: value for name, value in found.items() if value is not None}


@over("http", "grpc")
class Identity(Cases):
    def ask(self, authorization):
        return self.platform.client_with(self.protocol, authorization).list()

    def accepts(self, token):
        self.succeeds(self.ask("Bearer " + token))

    def refuses(self, authorization):
        answer = self.fails(self.ask(authorization), "UNAUTHORIZED")
        self.assertEqual(answer.raw, self.ask(None).raw, "every refusal is the same, byte for byte")

    def refuses_token(self, token):
        self.refuses("Bearer " + token)

    def test_a_good_token_is_accepted(self):
        self.accepts(tokens.mint("alpha", "someone", SECRET))

    def test_no_authorization_is_refused(self):
        self.fails(self.ask(None), "UNAUTHORIZED")

    def test_only_bearer_with_that_case_and_one_space_is_accepted(self):
        token = tokens.mint("alpha", "someone", SECRET)
        for value in ("bearer " + token, "BEARER " + token, "Bearer  " + token, "Bearer\t" + token, "Bearer" + token,
                      "Bearer", "Basic " + token, token, "Bearer " + token + " x", "Bearer " + token + ",Bearer " + token):
            if "\t" in value and self.protocol == "grpc":
                continue  # not a value that metadata can have
            with self.subTest(value=value.replace(token, "TOKEN")):
                self.refuses(value)

    def test_exactly_three_parts_of_version_v1_are_accepted(self):
        token = tokens.mint("alpha", "someone", SECRET)
        version, middle, signature = token.split(".")
        for bad in (middle + "." + signature, version + "." + middle, token + ".", token + ".x", "." + token,
                    "..", "v1..", "v1." + middle + ".", "v1.." + signature,
                    tokens.mint_claims(claims(), SECRET, "v2"), tokens.mint_claims(claims(), SECRET, "V1"),
                    tokens.mint_claims(claims(), SECRET, ""), "v2." + middle + "." + signature):
            with self.subTest(bad=bad):
                self.refuses_token(bad)

    def test_claims_that_are_no_base64url_or_no_json_object_are_refused(self):
        good = json.dumps(claims()).encode("utf-8")
        padded = base64.urlsafe_b64encode(good + b" " * ((1 - len(good)) % 3)).decode("ascii")
        self.assertTrue(padded.endswith("="))
        for part in (padded, "!" + padded.rstrip("="), padded.rstrip("=") + "\u00e9".encode("latin-1").decode("latin-1")):
            if self.protocol == "grpc" and not part.isascii():
                continue  # not a value that metadata can have
            message = "v1." + part
            with self.subTest(part=part):
                if part.isascii():
                    self.refuses_token(message + "." + tokens.sign(SECRET, message))
        for text in ("", "x", "[]", "null", "1", '"x"', "{}", good.decode() + "x", good.decode() * 2, "\ufeff" + good.decode(),
                     b"\xff" + good, good[:-1], b'{"consumerId":"alpha","subjectId":"\xc3\x28","exp":%d}' % (time.time() + 200)):
            with self.subTest(text=text):
                self.refuses_token(tokens.mint_claims(text, SECRET))

    def test_claims_of_wrong_types_or_missing_are_refused(self):
        soon = int(time.time()) + 200
        for changes in ({"consumerId": None}, {"subjectId": None}, {"exp": None}, {"consumerId": 1}, {"subjectId": ["x"]},
                        {"subjectId": True}, {"exp": str(soon)}, {"exp": soon + 0.5}, {"exp": True}, {"exp": {}},
                        {"exp": 1e300}, {"exp": -soon}, {"exp": 2 ** 63}, {"exp": 2 ** 64 + soon}):
            with self.subTest(changes=changes):
                self.refuses_token(tokens.mint_claims(claims(**changes), SECRET))

    def test_claims_that_the_platform_does_not_know_are_ignored(self):
        self.accepts(tokens.mint_claims(claims(iat=1, extra={"a": [1]}), SECRET))

    def test_identities_have_1_to_200_characters_and_one_that_is_not_blank(self):
        for subject in ("x", "x" * 200, SMILES, " x ", "\u00e9\u4e16\U0001F310"):
            with self.subTest(subject=subject):
                self.accepts(tokens.mint("alpha", subject, SECRET))
        for subject in ("", " ", "\t\n ", "x" * 201, SMILES + "x"):
            with self.subTest(subject=subject):
                self.refuses_token(tokens.mint("alpha", subject, SECRET))
        self.accepts(tokens.mint(SMILES, "someone", platform.SECRETS[SMILES]))

    def test_a_token_is_good_until_its_exp_and_no_longer_than_300_seconds_ahead(self):
        for lifetime in (3, 299, 300, 303):
            with self.subTest(lifetime=lifetime):
                self.accepts(tokens.mint("alpha", "someone", SECRET, lifetime))
        for lifetime in (0, -1, -300, 307, 3600, 10 ** 9):
            with self.subTest(lifetime=lifetime):
                self.refuses_token(tokens.mint("alpha", "someone", SECRET, lifetime))

    def test_unknown_consumers_and_other_consumers_secrets_are_refused(self):
        self.refuses_token(tokens.mint("nobody", "someone", SECRET))
        self.refuses_token(tokens.mint("beta", "someone", SECRET))
        self.refuses_token(tokens.mint("alpha", "someone", ""))
        self.refuses_token(tokens.mint("Alpha", "someone", SECRET))

    def test_both_secrets_of_a_rotation_are_accepted_and_no_other(self):
        for secret in platform.SECRETS["rotating"]:
            self.accepts(tokens.mint("rotating", "someone", secret))
        self.refuses_token(tokens.mint("rotating", "someone", "".join(platform.SECRETS["rotating"])))

    def test_a_signature_changed_in_any_character_is_refused(self):
        head, signature = tokens.mint("alpha", "someone", SECRET).rsplit(".", 1)
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        for place, letter in enumerate(signature):
            # The next letter: in the last place only bits that carry nothing change, and it is still another text.
            other = alphabet[alphabet.index(letter) ^ 1]
            with self.subTest(place=place):
                self.refuses_token(head + "." + signature[:place] + other + signature[place + 1:])
        for changed in (signature[:-1], signature + "A", signature + "=", signature.upper(), "A" * 43):
            with self.subTest(changed=changed):
                self.refuses_token(head + "." + changed)

    def test_claims_changed_under_a_good_signature_are_refused(self):
        version, _, signature = tokens.mint("alpha", "someone", SECRET).split(".")
        other = tokens.base64url(json.dumps(claims(subjectId="someone-else")).encode("utf-8"))
        self.refuses_token(version + "." + other + "." + signature)

    def test_a_token_of_more_than_8_kib_is_refused(self):
        self.refuses_token(tokens.mint_claims(claims(padding="x" * 7000), SECRET))

    def test_the_scope_comes_from_the_token_alone(self):
        one = self.platform.client(self.protocol, "rotating", self.subject)
        lease = self.succeeds(one.acquire(cases.POOL, "key")).lease
        self.addCleanup(self.release_all, "rotating", self.subject)
        former = tokens.mint("rotating", self.subject, platform.SECRETS["rotating"][0])
        self.assertEqual(self.succeeds(self.platform.client_with(self.protocol, "Bearer " + former).get(lease.id)).lease, lease)


if __name__ == "__main__":
    cases.main()
