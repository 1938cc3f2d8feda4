"""Files of a form (`multipart/form-data`), each passed on as it comes: none is kept in memory or on the host's disk."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from fumehood.server.e2b.errors import BodyError

_FIELD = "file"
_MOST_FILES, _MOST_PARTS = 1000, 1016
_MOST_HEADER_BYTES = 16 * 1024


class FormFiles:
    """`async for name, chunks in files`: each file has to be read before the next one; what is left of it is skipped.

    Parts that are not files of the field `file` are skipped, too.
    """

    def __init__(self, content_type: str, body: AsyncGenerator[bytes, None]) -> None:
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise BodyError("invalid_argument", "the form does not say what separates its parts")
        self._body = body
        self._events: deque[str | bytes | None] = deque()
        """The name of a file, pieces of its content, and None for its end."""
        self._header, self._value, self._disposition = b"", b"", b""
        self._header_bytes, self._parts, self._files = 0, 0, 0
        self._is_file = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_name,
                "on_header_value": self._add_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
            },
        )

    async def __aiter__(self) -> AsyncGenerator[tuple[str, AsyncGenerator[bytes, None]], None]:
        async with aclosing(self._body):
            while await self._has_more():
                name = self._events.popleft()
                if isinstance(name, str):
                    yield name, self._content()

    async def _content(self) -> AsyncGenerator[bytes, None]:
        while await self._has_more():
            event = self._events.popleft()
            if not isinstance(event, bytes):
                return
            yield event
        raise BodyError("invalid_argument", "the form ends in the middle of a file")

    async def _has_more(self) -> bool:
        while not self._events:
            chunk = await anext(self._body, None)
            if chunk is None:
                return False
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise BodyError("invalid_argument", f"the form is not valid: {error}") from None
        return True

    def _begin_part(self) -> None:
        self._header, self._value, self._disposition = b"", b"", b""
        self._header_bytes, self._parts, self._is_file = 0, self._parts + 1, False
        if self._parts > _MOST_PARTS:
            raise BodyError("invalid_argument", f"the form has more than {_MOST_FILES} files")

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._header += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MOST_HEADER_BYTES:
            raise BodyError("invalid_argument", "the form has a part with very long headers")

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        if options.get(b"name", b"").decode("utf-8", "replace") != _FIELD or b"filename" not in options:
            return
        self._is_file, self._files = True, self._files + 1
        if self._files > _MOST_FILES:
            raise BodyError("invalid_argument", f"the form has more than {_MOST_FILES} files")
        self._events.append(_decoded(options[b"filename"]))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._events.append(data[start:end])

    def _end_part(self) -> None:
        if self._is_file:
            self._events.append(None)


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("latin-1")
