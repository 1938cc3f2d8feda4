"""Evidence that a policy holds on this host: every control as an attack that must fail and a use that must work.

Owns the trials, the report and its signature, and how a report is shown and verified. A trial says what was seen, never
what ought to be; a control without an attack and a use that were carried out is not proved.

Must not know: the command line, servers, agents.

    trials/        the attacks and uses, by control
    laboratory.py  sandboxes of the policy, programs in them, and things of the host that no program may reach
    carry_out.py   all trials of a policy, one after the other
    report.py      what was seen, signed; the verdict follows from it
    verification.py  whether a report is genuine, complete, and about this policy, kernel and version
    standards.py   which controls of SOC 2, ISO 27001, NIST SP 800-190 and OWASP a trial is evidence for
    page.py, junit.py  the report for people and for CI
"""
