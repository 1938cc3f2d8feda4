"""Values that the host keeps, in a variable or in a file, and secrets, which the gateway adds to requests.

Everything that needs such a value reads it here: the gateway, which sends a secret, and the audit log and the filters,
which remove it from texts. Rules of their own would leave a value that one of them knows and another does not. Values
never enter a policy or a sandbox.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar, Protocol, Self

from pydantic import AfterValidator, Field, model_validator

from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.policy.hosts import Host
from fumehood.policy.paths import HostPath
from fumehood.policy.section import Section, Text

MOST_VALUE_BYTES = 16 * 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _check_variable(text: str) -> str:
    if _VARIABLE.fullmatch(text) is None:
        raise ValueError("must be a name of letters, digits and _, such as GITHUB_TOKEN")
    return text


Variable = Annotated[Text, AfterValidator(_check_variable)]


class MissingValueError(UsageError):
    """The host does not have the value: the variable is not set, the file cannot be read, or there is nothing in it."""


class SecretSource(Protocol):
    """Where the values are that a policy names: of this process, or of one tenant of a server."""

    def variable(self, name: str) -> str | None:
        """The value of a variable; None if there is no such variable."""
        ...

    def file(self, path: str) -> bytes:
        """At most MOST_VALUE_BYTES and one more; MissingValueError if there is no such file, or it is not to be read.

        UsageError for a file that cannot be trusted. The error completes a sentence that begins with its label.
        """
        ...


@frozen
class ProcessSecrets:
    """Variables of this process, and files that it may read."""

    variables: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def variable(self, name: str) -> str | None:
        return self.variables.get(name)

    def file(self, path: str) -> bytes:
        try:
            # Without waiting: a pipe in the place of the file would block until another process writes to it.
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                mode = os.fstat(file.fileno()).st_mode
                if not stat.S_ISREG(mode):
                    raise UsageError("is not a regular file; a value is read more than once")
                if mode & stat.S_IWOTH:
                    raise UsageError(f"can be written by every user; run `chmod o-w {path}`")
                return file.read(MOST_VALUE_BYTES + 1)
        except OSError as error:
            raise MissingValueError(f"cannot be read: {error.strerror}") from None


@frozen
class GivenSecrets:
    """Values by name, and nothing else: no variable of this process and no file has any."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def variable(self, name: str) -> str | None:
        return self.values.get(name)

    def file(self, path: str) -> bytes:
        raise MissingValueError("is a file of the server, which no policy of a tenant can name; use from_env")


PROCESS_SECRETS = ProcessSecrets()


class HostValue(Section):
    """A value by name, and where it is found on the host. Never holds the value itself."""

    kind: ClassVar[str] = "value"
    """What it is called in messages."""

    name: Text = Field(description="What it is called in messages and records.")
    from_env: Variable | None = Field(
        default=None, description="The variable of the host's environment that has the value."
    )
    from_file: HostPath | None = Field(default=None, description="The file on the host that has the value.")

    @model_validator(mode="after")
    def _require_one_origin(self) -> Self:
        if (self.from_env is None) == (self.from_file is None):
            raise ValueError("needs exactly one of from_env and from_file")
        return self

    @property
    def origin(self) -> str:
        return f"variable {self.from_env}" if self.from_env is not None else f"file {self.from_file}"

    @property
    def label(self) -> str:
        """The label for messages: which value it is, and where it should be. Never the value."""
        return f"{self.kind} {self.name}: {self.origin}"

    def read(self, source: SecretSource) -> str:
        """The value that the source has now, without white space around it, such as the line end of a file.

        Raises MissingValueError if there is none, and UsageError for one that is not text of at most 16 KiB, or that is
        in a file that other users can write.
        """
        data = self._variable(source, self.from_env) if self.from_env is not None else self._content(source)
        if len(data) > MOST_VALUE_BYTES:
            raise UsageError(f"{self.label} has more than {MOST_VALUE_BYTES} bytes")
        try:
            value = data.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise UsageError(f"{self.label} is not text") from None
        if not value:
            raise MissingValueError(f"{self.label} is empty; put the value there")
        return value

    def _variable(self, source: SecretSource, name: str) -> bytes:
        value = source.variable(name)
        if value is None:
            raise MissingValueError(f"{self.label} is not set; set it where the sandbox is opened")
        return os.fsencode(value)

    def _content(self, source: SecretSource) -> bytes:
        try:
            return source.file(self.from_file or "")
        except UsageError as error:
            raise type(error)(f"{self.label} {error}") from None


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
# Headers that decide where a message goes or ends; setting one would let a secret's text split requests.
_FRAMING = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"),
        *("keep-alive", "proxy-connection", "accept-encoding"),
    }
)


def _check_header(text: str) -> str:
    if _HEADER.fullmatch(text) is None or text.lower() in _FRAMING:
        raise ValueError("must be a header that may carry a credential, such as Authorization")
    return text


def _check_format(text: str) -> str:
    if text.count("{}") != 1 or text.count("{") != 1 or text.count("}") != 1:
        raise ValueError('must hold {} once, where the secret goes, such as "Bearer {}"')
    return text


class Injection(Section):
    """Where the gateway puts a secret: one header, to one host, over TLS, in requests that the rules allow."""

    host: Host = Field(description="The only host whose requests get it.")
    header: Annotated[Text, AfterValidator(_check_header)] = Field(
        default="Authorization", description="The header that carries it."
    )
    format: Annotated[Text, AfterValidator(_check_format)] = Field(
        default="Bearer {}", description="The header's value; {} is where the secret goes."
    )


class Secret(HostValue):
    """A credential by name, where its value is found on the host, and the only place where it is used."""

    kind: ClassVar[str] = "secret"

    name: Variable = Field(description="What it is called in messages and records.")
    inject: Injection = Field(
        description="Which requests get it. They have to be allowed by `network.allow`, over TLS."
    )
