"""What `make audit` says of pip-audit's answer."""

from __future__ import annotations

from audit import told


def test_what_is_known_is_named_and_what_was_not_looked_up_is_counted() -> None:
    sound = {"name": "sound", "version": "1.0", "vulns": []}
    weak = {"name": "weak", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
    unknown = {"name": "unknown", "skip_reason": "not found"}
    counted = "2 packages checked, 1 vulnerabilities; not checked, as no advisories were found: 1: unknown"
    assert told([sound, weak, unknown]) == (["weak 2.0: PYSEC-1, mended in 2.1", counted], 1)
    assert told([sound]) == (["1 packages checked, 0 vulnerabilities"], 0)
