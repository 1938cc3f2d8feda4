"""What goes wrong with a model, from pydantic-ai's words to ours."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_ai import exceptions

from fumehood.agents.models.interface import ModelFailure
from fumehood.agents.models.redaction import CredentialRedactor
from fumehood.errors import ModelError

# The first that fits; children before their parents.
_KINDS: tuple[tuple[type[Exception], ModelFailure], ...] = (
    (exceptions.ContentFilterError, ModelFailure.REFUSED),
    (exceptions.ModelContextWindowExceededError, ModelFailure.CONTEXT_OVERFLOW),
    (exceptions.ModelAuthenticationError, ModelFailure.AUTHENTICATION),
    (exceptions.ModelNotFoundError, ModelFailure.NOT_FOUND),
    (exceptions.ModelRequestRejectedError, ModelFailure.REJECTED),
    (exceptions.ModelRateLimitError, ModelFailure.RATE_LIMITED),
    (exceptions.ModelQuotaExceededError, ModelFailure.QUOTA),
    (exceptions.ModelUnavailableError, ModelFailure.UNAVAILABLE),
    (exceptions.ModelServerError, ModelFailure.SERVER),
    (exceptions.ModelTimeoutError, ModelFailure.TIMEOUT),
    (exceptions.ModelRequestTimeout, ModelFailure.TIMEOUT),
    (exceptions.ModelConnectionError, ModelFailure.CONNECTION),
)
_MOST_CHARACTERS = 400


def as_model_error(error: Exception, model: str, redactor: CredentialRedactor, *, has_begun: bool) -> ModelError:
    """The `ModelError` for a failed request, with credentials redacted: servers repeat the key that they refuse.

    `has_begun` says that a part of the answer was there already: then a lost connection is a broken-off answer.

    What the wire below found is taken as it is. Whatever else a library raises about an answer means that the answer
    made no sense to it.
    """
    own = next((each for each in _chain(error) if isinstance(each, ModelError)), None)
    if own is not None:
        return own
    kind = next((kind for parent, kind in _KINDS if isinstance(error, parent)), None) or _unsorted(error, has_begun)
    if kind is ModelFailure.CONNECTION and has_begun:
        kind = ModelFailure.TRUNCATED
    text = " ".join(redactor.text(str(error)).split()) or type(error).__name__
    cut = text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."
    return ModelError(kind, f"the model {redactor.text(model)} failed ({kind}): {cut}{_advice(kind, model)}")


def _advice(kind: ModelFailure, model: str) -> str:
    """A server that knows chat completions alone answers that there is no such page, and nothing else."""
    if kind is ModelFailure.NOT_FOUND and model.startswith("openai:"):
        name = model.removeprefix("openai:")
        return f". If the server speaks chat completions and not responses, name it as {name}@http://HOST:PORT/v1"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """It, what it came from, and so on."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _unsorted(error: Exception, has_begun: bool) -> ModelFailure:
    is_api_error = isinstance(error, exceptions.ModelAPIError)
    if not is_api_error or isinstance(error.__cause__, ValueError):
        return ModelFailure.MALFORMED
    if error.__cause__ is None:  # pydantic-ai itself found something missing
        return ModelFailure.TRUNCATED if has_begun else ModelFailure.MALFORMED
    return ModelFailure.REJECTED
