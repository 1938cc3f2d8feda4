"""HTML of which tables, texts and embedded pictures are left.

It is read as tags and texts and written anew: what is not on the lists below is not written, and every text is escaped.
The input is hostile and read on the host, so no pattern goes over a character twice.
"""

from __future__ import annotations

import html
import re

_TAGS = frozenset(
    {
        *(
            "table",
            "thead",
            "tbody",
            "tfoot",
            "tr",
            "th",
            "td",
            "caption",
            "div",
            "span",
            "p",
            "blockquote",
            "pre",
            "code",
        ),
        *("h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "dl", "dt", "dd"),
        *("b", "strong", "i", "em", "u", "s", "sub", "sup", "small"),
    }
)
_EMPTY_TAGS = frozenset({"br", "hr", "img"})
# Their content is not text for people.
_LEFT_OUT = frozenset({"script", "style", "title", "template", "svg", "math", "head"})
_NUMBER = re.compile(r"\d{1,4}")
_ATTRIBUTES = {
    "colspan": _NUMBER,
    "rowspan": _NUMBER,
    "border": _NUMBER,
    "width": _NUMBER,
    "height": _NUMBER,
    "class": re.compile("dataframe"),
    "style": re.compile(r"text-align: ?(?:left|right|center);?"),
    "alt": re.compile(r"[^<>]{0,1000}"),
    "src": re.compile(r"data:image/(?:png|jpeg|gif|svg\+xml);base64,[A-Za-z0-9+/=]*+"),
}
# A quoted value with angle brackets makes the whole a text. Each attempt ends at the next bracket.
_TAG = re.compile(r"""<(/?)([A-Za-z][A-Za-z0-9]*+)((?:[^<>"']|"[^"<>]*+"|'[^'<>]*+')*+)>""")
_ATTRIBUTE = re.compile(r"""([A-Za-z-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++))""")
_MOST_DEPTH = 100
# Notebooks typeset formulas in the text of HTML, and formulas can have links and styles. What begins or ends one is in
# an element of its own, which no formula goes across.
_MATH = re.compile(r"\$|\\++")


def harmless_html(text: str) -> str:
    """The same table or text, without scripts, styles, links and what a viewer would fetch."""
    writer, position = _Writer(), 0
    while tag := _TAG.search(text, position):
        writer.text(text[position : tag.start()])
        position = tag.end()
        closing, name, attributes = tag[1], tag[2].lower(), tag[3]
        if name in _LEFT_OUT and not closing:
            position = _end_of(name, text, position)
        elif closing:
            writer.close(name)
        else:
            writer.open(name, attributes)
    writer.text(text[position:])
    return writer.finish()


def picture(media_type: str, encoded: str) -> str:
    """A picture as an element of its own. As such it runs no script and fetches nothing, also if it is an SVG."""
    return f'<img src="data:{media_type};base64,{encoded}">'


def _end_of(name: str, text: str, position: int) -> int:
    found = re.compile(rf"</{name}[^<>]*+>", re.IGNORECASE).search(text, position)
    return found.end() if found else len(text)


class _Writer:
    def __init__(self) -> None:
        self._parts: list[str] = []
        self._open: list[str] = []

    def text(self, text: str) -> None:
        self._parts.append(_MATH.sub(r"<span>\g<0></span>", html.escape(html.unescape(text))))

    def open(self, name: str, attributes: str) -> None:
        is_known = name in _EMPTY_TAGS or (name in _TAGS and len(self._open) < _MOST_DEPTH)
        if is_known:
            self._parts.append(f"<{name}{_kept(attributes)}>")
        if is_known and name in _TAGS:
            self._open.append(name)

    def close(self, name: str) -> None:
        """What is open inside closes with it; a tag that was never opened is left out."""
        while name in self._open:
            last = self._open.pop()
            self._parts.append(f"</{last}>")
            if last == name:
                return

    def finish(self) -> str:
        for name in reversed(self._open):
            self._parts.append(f"</{name}>")
        return "".join(self._parts)


def _kept(attributes: str) -> str:
    kept: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(attributes):
        name, value = match[1].lower(), html.unescape(match[2] or match[3] or match[4] or "").strip()
        if name in _ATTRIBUTES and _ATTRIBUTES[name].fullmatch(value):
            kept.setdefault(name, value)
    return "".join(f' {name}="{html.escape(value)}"' for name, value in kept.items())
