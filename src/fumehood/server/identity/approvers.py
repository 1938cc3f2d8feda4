"""Who may answer a question: not the one who asked, under whatever name."""

from __future__ import annotations

from fumehood.errors import DeniedError
from fumehood.server.identity.keys import family_of
from fumehood.server.identity.principals import Principal
from fumehood.server.storage.database import Database


async def check_other(database: Database, caller: Principal, asked_by: str) -> None:
    """DeniedError for the one who asked; a key that may make keys can have made the other."""
    if asked_by == caller.name:
        raise DeniedError("the key that asked cannot answer; another one with the scope 'approve' can")
    families = [await family_of(database, caller.tenant, each) for each in (asked_by, caller.name)]
    if families[0] == families[1]:
        raise DeniedError(
            "the key that asked and this one were made with each other, or with the same key, and count as one; "
            "answer with a key that the server's operator made (`hood key create`), or as a person with a token"
        )
