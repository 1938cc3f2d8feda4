"""How the property tests of the policy run: a busy machine is slow, which says nothing about a policy."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("policy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("policy")
