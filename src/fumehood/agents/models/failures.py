"""What goes wrong with a model, from pydantic-ai's words to ours."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_ai import exceptions

from fumehood.agents.models.cleaning import Cleaner
from fumehood.agents.models.interface import Failure
from fumehood.errors import ModelError

# The first that fits; children before their parents.
_KINDS: tuple[tuple[type[Exception], Failure], ...] = (
    (exceptions.ContentFilterError, Failure.REFUSED),
    (exceptions.ModelContextWindowExceededError, Failure.CONTEXT_OVERFLOW),
    (exceptions.ModelAuthenticationError, Failure.AUTHENTICATION),
    (exceptions.ModelNotFoundError, Failure.NOT_FOUND),
    (exceptions.ModelRequestRejectedError, Failure.REJECTED),
    (exceptions.ModelRateLimitError, Failure.RATE_LIMITED),
    (exceptions.ModelQuotaExceededError, Failure.QUOTA),
    (exceptions.ModelUnavailableError, Failure.UNAVAILABLE),
    (exceptions.ModelServerError, Failure.SERVER),
    (exceptions.ModelTimeoutError, Failure.TIMEOUT),
    (exceptions.ModelRequestTimeout, Failure.TIMEOUT),
    (exceptions.ModelConnectionError, Failure.CONNECTION),
)
_MOST_CHARACTERS = 400


def as_model_error(error: Exception, model: str, cleaner: Cleaner, *, has_begun: bool) -> ModelError:
    """Servers repeat the key that they refuse: what they say is cleaned before anybody gets it.

    `has_begun` says that a part of the answer was there already: then a lost connection is a broken-off answer.

    What the wire below found is taken as it is. Whatever else a library raises about an answer means that the answer
    made no sense to it.
    """
    own = next((each for each in _chain(error) if isinstance(each, ModelError)), None)
    if own is not None:
        return own
    kind = next((kind for parent, kind in _KINDS if isinstance(error, parent)), None) or _unsorted(error, has_begun)
    if kind is Failure.CONNECTION and has_begun:
        kind = Failure.TRUNCATED
    text = " ".join(cleaner.text(str(error)).split()) or type(error).__name__
    cut = text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."
    return ModelError(kind, f"the model {cleaner.text(model)} failed ({kind}): {cut}{_advice(kind, model)}")


def _advice(kind: Failure, model: str) -> str:
    """A server that knows chat completions alone answers that there is no such page, and nothing else."""
    if kind is Failure.NOT_FOUND and model.startswith("openai:"):
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


def _unsorted(error: Exception, has_begun: bool) -> Failure:
    is_api_error = isinstance(error, exceptions.ModelAPIError)
    if not is_api_error or isinstance(error.__cause__, ValueError):
        return Failure.MALFORMED
    if error.__cause__ is None:  # pydantic-ai itself found something missing
        return Failure.TRUNCATED if has_begun else Failure.MALFORMED
    return Failure.REJECTED
