"""Credentials by their format: those whose shape alone tells what they are, so that little else is taken for one.

Placeholders (`ghp_xxxxxxxx`, `AKIA...EXAMPLE`) are none: what is random has many different characters.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fumehood.secret_scan.values import TextSpan

_START, _END = r"(?<![A-Za-z0-9_-])", r"(?![A-Za-z0-9_-])"
_FEWEST_DIFFERENT = 8
_ARMOUR = r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"


def _is_random(match: re.Match[str]) -> bool:
    body = match["random"]
    return len(set(body)) >= _FEWEST_DIFFERENT and "example" not in body.lower()


def _is_jwt(match: re.Match[str]) -> bool:
    part = match["random"]
    try:
        header: object = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header


def _is_certain(match: re.Match[str]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Format:
    """`random` in the pattern is the part that is different in every token.

    A text with none of the `hints` in it, in whatever case, is not searched.
    """

    what: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], bool] = _is_random

    def find(self, text: str, lower: str | None = None) -> Iterator[TextSpan]:
        lower = text.lower() if lower is None else lower
        if not any(hint in lower for hint in self.hints):
            return
        for match in self.pattern.finditer(text):
            if self.check(match):
                group = "secret" if "secret" in match.re.groupindex else 0
                yield TextSpan(*match.span(group), self.what)


def _format(what: str, prefix: str, body: str, *hints: str) -> Format:
    return Format(what, hints, re.compile(f"{_START}{prefix}(?P<random>{body}){_END}"))


FORMATS = (
    Format(
        "private key",
        ("private key",),
        re.compile(rf"{_ARMOUR}.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL),
        _is_certain,
    ),
    _format("AWS access key", "(?:AKIA|ASIA|ABIA|ACCA)", "[A-Z2-7]{16}", "akia", "asia", "abia", "acca"),
    Format(
        "AWS secret key",
        ("secret",),
        re.compile(
            r"(?i:aws.{0,20}secret.{0,20}?)[\"'\s:=>]{1,8}(?P<secret>(?P<random>[A-Za-z0-9/+]{40}))(?![A-Za-z0-9/+=])"
        ),
    ),
    _format("GitHub token", "gh[pousr]_", "[A-Za-z0-9]{36,255}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _format("GitHub token", "github_pat_", "[A-Za-z0-9]{22}_[A-Za-z0-9]{59}", "github_pat_"),
    _format(
        "GitLab token",
        "(?:glpat|gldt|glrt|glcbt|glptt)-",
        "[A-Za-z0-9_-]{20,64}",
        "glpat-",
        "gldt-",
        "glrt-",
        "glcbt-",
        "glptt-",
    ),
    _format("Slack token", "(?:xox[abeoprs]|xapp)-", "[0-9A-Za-z-]{20,255}", "xox", "xapp-"),
    Format(
        "Slack webhook",
        ("hooks.slack.com",),
        re.compile(r"https://hooks\.slack\.com/(?P<random>(?:services|workflows)/[A-Za-z0-9_/]{30,90})"),
    ),
    Format(
        "JSON web token",
        ("eyj",),
        re.compile(rf"{_START}(?P<random>eyJ[A-Za-z0-9_-]{{8,}})\.[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{16,}}"),
        _is_jwt,
    ),
    _format("Google API key", "AIza", "[0-9A-Za-z_-]{35}", "aiza"),
    _format("Google OAuth token", r"ya29\.", "[0-9A-Za-z_-]{30,}", "ya29."),
    _format(
        "Stripe key", "(?:sk|rk)_(?:live|test)_", "[0-9A-Za-z]{20,255}", "sk_live_", "rk_live_", "sk_test_", "rk_test_"
    ),
    _format("OpenAI key", "sk-(?:proj-|svcacct-|admin-)?", "[A-Za-z0-9_-]{16,}T3BlbkFJ[A-Za-z0-9_-]{16,}", "t3blbkfj"),
    _format("Anthropic key", r"sk-ant-[a-z]+\d\d-", "[A-Za-z0-9_-]{80,}", "sk-ant-"),
    _format("npm token", "npm_", "[A-Za-z0-9]{36}", "npm_"),
    _format("PyPI token", "pypi-AgEI", "[A-Za-z0-9_-]{50,}", "pypi-agei"),
    _format("Hugging Face token", "hf_", "[A-Za-z0-9]{34,40}", "hf_"),
    _format("SendGrid key", r"SG\.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}", "sg."),
    _format("DigitalOcean token", "do[por]_v1_", "[a-f0-9]{64}", "dop_v1_", "doo_v1_", "dor_v1_"),
    _format("Docker token", "dckr_(?:pat|oat)_", "[A-Za-z0-9_-]{27,32}", "dckr_"),
    _format("Databricks token", "dapi", "[a-f0-9]{32}", "dapi"),
    _format("Vault token", r"hv[sbr]\.", "[A-Za-z0-9_-]{24,255}", "hvs.", "hvb.", "hvr."),
    _format("age key", "AGE-SECRET-KEY-1", "[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}", "age-secret-key-1"),
    _format("Telegram bot token", r"\d{8,10}:AA", "[A-Za-z0-9_-]{33}", ":aa"),
    _format("Shopify token", "shp(?:at|ca|pa|ss)_", "[a-fA-F0-9]{32}", "shpat_", "shpca_", "shppa_", "shpss_"),
    Format(
        "Azure storage key", ("accountkey=",), re.compile(r"AccountKey=(?P<secret>(?P<random>[A-Za-z0-9+/]{86})==)")
    ),
    Format(
        "password in a URL",
        ("://",),
        re.compile(
            r"(?<![a-z0-9])[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>{}$]{1,64}:"
            r"(?P<secret>(?P<random>[^\s/@:\"'<>{}$*]{6,128}))@[A-Za-z0-9\[]"
        ),
        lambda match: len(set(match["random"])) > 4 and match["random"].lower() not in ("password", "pass:word"),
    ),
    Format(
        "bearer token",
        ("authorization",),
        re.compile(
            r"(?i:authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:bearer|token|basic)\s{1,4})"
            r"(?P<secret>(?P<random>[A-Za-z0-9._~+/=-]{16,}))"
        ),
    ),
)


_HINTS = tuple(hint for each in FORMATS for hint in each.hints)


def find_tokens(text: str) -> Iterator[TextSpan]:
    lower = text.lower()
    # Most texts have none: that is found out first, and not for each format anew.
    if [hint for hint in _HINTS if hint in lower]:
        for each in FORMATS:
            yield from each.find(text, lower)
