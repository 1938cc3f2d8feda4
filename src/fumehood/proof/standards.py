"""Which controls of published standards a trial is evidence for, in words.

A tool can show that a technical control works on a host at a time. It cannot show that an organisation meets a
standard: scope, people, reviews and operation over time are the auditor's to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

CAVEAT = (
    "This report is evidence of technical controls, on one host at one time. Whether an organisation meets a standard "
    "also depends on its scope, people and procedures, which no program can test."
)
_ACCESS = (
    "SOC 2 CC6.1 (logical access to information is restricted)",
    "ISO/IEC 27001 A.8.3 (information access restriction)",
)
_BOUNDARY = (
    "SOC 2 CC6.6 (protection against threats from outside the boundary)",
    "ISO/IEC 27001 A.8.22 (segregation of networks)",
    "NIST SP 800-190 4.4.2 (unbounded network access from containers)",
)
_CAPACITY = (
    "SOC 2 A1.1 (capacity is managed)",
    "ISO/IEC 27001 A.8.6 (capacity management)",
    "OWASP LLM10 (unbounded consumption)",
)
_RUNTIME = (
    "ISO/IEC 27001 A.8.27 (secure system architecture)",
    "NIST SP 800-190 4.4.3 (insecure container runtime configurations)",
    "NIST SP 800-190 4.5.1 (large attack surface of the host)",
    "OWASP Agentic AI T11 (unexpected code execution)",
)
_LEAST_PRIVILEGE = ("ISO/IEC 27001 A.8.2 (privileged access rights)", "OWASP LLM06 (excessive agency)")
_LEAKAGE = ("ISO/IEC 27001 A.8.12 (data leakage prevention)", "OWASP LLM02 (sensitive information disclosure)")
_LOGS = (
    "SOC 2 CC7.2 (anomalies are monitored)",
    "ISO/IEC 27001 A.8.15 (logging)",
    "OWASP Agentic AI T8 (repudiation and untraceability)",
)
_IMAGES = ("NIST SP 800-190 4.1.5 (use of untrusted images)", "ISO/IEC 27001 A.8.19 (installation of software)")
_TOOLS = ("OWASP LLM06 (excessive agency)", "OWASP Agentic AI T2 (tool misuse)")

# By the control of the enforcement report, or by the section that it is in.
_EVIDENCE: Mapping[str, tuple[str, ...]] = {
    "kernel": _RUNTIME,
    "filesystem": (*_ACCESS, *_LEAKAGE, "NIST SP 800-190 4.5.5 (host file system tampering)"),
    "filesystem.outputs": (*_ACCESS, *_LEAKAGE),
    "network": (*_BOUNDARY, *_LEAKAGE),
    "network.allow": (*_BOUNDARY, *_LEAKAGE),
    "secrets": (*_ACCESS, *_LEAKAGE),
    "processes": _RUNTIME,
    "privileges": (*_RUNTIME, *_LEAST_PRIVILEGE),
    "system calls": (*_RUNTIME, *_LEAST_PRIVILEGE),
    "environment": (*_RUNTIME, *_LEAKAGE),
    "environment.packages": _IMAGES,
    "image": _IMAGES,
    "docker": _RUNTIME,
    "commands": _TOOLS,
    "resources": _CAPACITY,
    "runs": (*_RUNTIME, *_LEAKAGE),
    "end": _RUNTIME,
    "results": (*_RUNTIME, *_LOGS),
    "snapshots": (*_ACCESS, *_CAPACITY),
    "audit": _LOGS,
}


def evidence_for(control: str) -> tuple[str, ...]:
    section = control.partition(".")[0]
    return _EVIDENCE.get(control) or _EVIDENCE.get(section, ())


def by_standard(controls: Iterable[str]) -> dict[str, list[str]]:
    """Each clause of a standard, and the controls whose trials are evidence for it."""
    found: dict[str, list[str]] = {}
    for control in controls:
        for clause in evidence_for(control):
            found.setdefault(clause, []).append(control)
    return dict(sorted(found.items(), key=_place))


def _place(entry: tuple[str, object]) -> list[tuple[bool, int, str]]:
    """In the order of a table of contents: A.8.2 comes before A.8.12."""
    parts = re.split(r"(\d+)", entry[0])
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
