"""docs/limits.md and docs/errors.md say what base/limits.h and base/reasons.def say: no more, no less, in the same order."""
import re
import unittest


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def table_rows(text):
    """The cells of every table row whose first cell is a name in backquotes."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(r"`[A-Z0-9_]+`", cells[0]):
            rows.append([cells[0].strip("`")] + cells[1:])
    return rows


class Docs(unittest.TestCase):
    maxDiff = None

    def test_limits(self):
        defined = re.findall(r"^#define (LIMIT_\w+) (\d+)(?:\s|$)", read("base/limits.h"), re.M)
        self.assertEqual(len(defined), read("base/limits.h").count("#define LIMIT_"), "every limit is a plain number")
        rows = table_rows(read("docs/limits.md"))
        for row in rows:
            self.assertEqual(len(row), 4, row)
            self.assertRegex(row[1], r"^\d{1,3}(,\d{3})*$", row[0])
        documented = [(row[0], row[1].replace(",", "")) for row in rows]
        self.assertEqual(defined, documented)

    def test_answers_of_limits_are_reasons(self):
        names = set(re.findall(r"^REASON\((\w+),", read("base/reasons.def"), re.M))
        for row in table_rows(read("docs/limits.md")):
            for name in re.findall(r"`([A-Z_]+)`", row[3]):
                self.assertIn(name, names, row[0])

    def test_errors(self):
        defined = re.findall(r'^REASON\((\w+), (\d+), (\w+), (true|false), "(.*)"\)$', read("base/reasons.def"), re.M)
        self.assertEqual(len(defined), len(re.findall(r"^REASON\(", read("base/reasons.def"), re.M)))
        rows = table_rows(read("docs/errors.md"))
        for row in rows:
            self.assertEqual(len(row), 6, row)
            self.assertTrue(row[5], row[0] + " says when")
        documented = [(r[0], r[1], r[2], {"yes": "true", "no": "false"}.get(r[3], r[3]), r[4]) for r in rows]
        self.assertEqual(defined, documented)

    def test_grpc_codes_are_those_of_grpc(self):
        codes = dict(re.findall(r"GRPC_CODE_(\w+) = (\d+)", read("base/reason.c")))
        import grpc

        self.assertEqual(codes, {c.name: str(c.value[0]) for c in grpc.StatusCode if c.name != "OK"})


if __name__ == "__main__":
    unittest.main()
