"""URLs of remote agents, and which of them may be called. Pure functions; nothing is looked up.

What was checked is what is sent: a URL is taken apart once, anything two readers could understand
differently is refused, and the request goes to the text that the checked parts make. The list is about
names: what an allowed name resolves to is up to whoever runs that domain.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from urllib.parse import urldefrag, urljoin, urlsplit

from routelock.errors import ConfigError, InvalidRequest

__all__ = ["AgentUrl", "AllowList", "UrlNotAllowed", "completions_url", "parse_url", "redirect_target"]


_SUFFIX = "/chat/completions"

_LONGEST = 8000

_PORTS = {"http": 80, "https": 443}

_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@]+)(?::([0-9]{0,5}))?")

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")

_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

_TEXT = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
"""What a path or a query may hold (RFC 3986, section 3.3 and 3.4)."""

_HIDDEN = re.compile(r"%(2F|5C|25|[01][0-9A-F]|7F)")
"""Escaped slashes, backslashes, per cents and control characters: servers disagree on what they mean."""

_AMBIGUOUS = frozenset("ßẞς\u200c\u200d")
"""Letters that the two standards for international names (RFC 3490 and 5891) treat differently."""


class UrlNotAllowed(InvalidRequest):
    """A URL that did not come from the program is not on its list, so nothing was sent there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUrl:
    """A URL in the one form in which it is compared and sent. Make one with `parse_url`."""

    scheme: str
    host: str
    """In lower case and ASCII, without a dot at the end; an IPv6 address has its brackets."""
    port: int
    path: str
    query: str = ""

    @property
    def authority(self) -> str:
        """The host, and the port where it is not the usual one."""
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: two URLs with one origin are answered by the same server."""
        return f"{self.scheme}://{self.authority}"

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine by its very name."""
        if self.host.rpartition(".")[2] == "localhost":
            return True
        address = _address(self.host)
        return address is not None and address.is_loopback

    def __str__(self) -> str:
        return f"{self.origin}{self.path}{'?' if self.query else ''}{self.query}"


def parse_url(text: str) -> AgentUrl:
    """Return a URL in its one form.

    Raises:
        ConfigError: it is not an http or https URL, or not a plain one; the message says why.
    """
    if len(text) > _LONGEST or re.search(r"[\x00-\x20\x7f-\xa0\\]", text):
        raise _bad(text, "it is too long, or has blanks, backslashes or control characters in it")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise _bad(text, str(error)) from error
    if parts.scheme not in _PORTS or not parts.netloc:
        raise _bad(text, "it must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise _bad(text, "a user or password does not belong into it; pass api_key= or headers=")
    if "#" in text:
        raise _bad(text, "a fragment (#...) is never sent")
    host, port = _host_and_port(text, parts.netloc)
    return AgentUrl(
        scheme=parts.scheme,
        host=host,
        port=_PORTS[parts.scheme] if port is None else port,
        path=_path(text, parts.path) or "/",
        query=_query(text, parts.query),
    )


def completions_url(text: str) -> AgentUrl:
    """Return the URL to post to: ``/chat/completions`` is added unless it is there already.

    Raises:
        ConfigError: see `parse_url`.
    """
    url = parse_url(text)
    path = url.path.rstrip("/")
    return replace(url, path=path if path.endswith(_SUFFIX) else path + _SUFFIX)


def redirect_target(url: AgentUrl, location: str) -> AgentUrl:
    """Return where an answer with this ``Location`` header sends the request.

    Raises:
        ConfigError: it is no usable URL, or leads from https to http.
    """
    if re.search(r"[\x00-\x20\x7f-\xa0\\]", location):  # urljoin would drop some of these without a word
        raise _bad(location, "it has blanks, backslashes or control characters in it")
    try:
        target = parse_url(urldefrag(urljoin(str(url), location)).url)
    except ValueError as error:
        raise error if isinstance(error, ConfigError) else _bad(location, str(error)) from error
    if url.scheme == "https" and target.scheme != "https":
        raise _bad(location, "it leads from https to http")
    return target


class AllowList:
    """Which URLs may be called that the program did not write itself.

    Args:
        entries: each one of

            * a host, ``"agents.example.com"``: its https port; or ``"agents.example.com:8443"``: that
              port. Plain http is for this machine alone, ``"localhost:8000"`` or ``"127.0.0.1:8000"``;
            * ``"*.example.com"``: every host below that domain, and not the domain itself;
            * a URL, ``"https://example.com/agents/"``: whatever begins like it, in whole steps of the
              path. Only this form allows http elsewhere: ``"http://agents.internal:8000/"``.

    Raises:
        ConfigError: an entry is none of these, or so wide that it is no list any more.
    """

    def __init__(self, entries: Collection[str]) -> None:
        if isinstance(entries, str):
            raise ConfigError(f"allow must be a list of hosts or URLs, such as [{entries!r}], not one text.")
        self._entries = tuple(_entry(entry) for entry in entries)
        self._said = tuple(entries)

    def permits(self, url: AgentUrl) -> bool:
        """Whether one of the entries covers this URL."""
        return any(entry.covers(url) for entry in self._entries)

    def __str__(self) -> str:
        return ", ".join(self._said) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    host: str
    port: int | None
    below: bool = False
    """Whether it stands for the hosts below ``host``."""
    scheme: str | None = None
    path: str = ""

    def covers(self, url: AgentUrl) -> bool:
        return self._covers_host(url.host) and self._covers_port(url) and self._covers_path(url.path)

    def _covers_host(self, host: str) -> bool:
        return host.endswith(f".{self.host}") if self.below else host == self.host

    def _covers_port(self, url: AgentUrl) -> bool:
        if self.scheme is not None:
            return (url.scheme, url.port) == (self.scheme, self.port)
        safe = url.scheme == "https" or url.is_local
        return safe and url.port == (self.port or _PORTS[url.scheme])

    def _covers_path(self, path: str) -> bool:
        return path == self.path or path.startswith(f"{self.path}/")


def _entry(text: str) -> _Entry:
    if "://" in text:
        url = parse_url(text)
        if url.query:
            raise _bad(text, "an entry of allow has no query")
        return _Entry(scheme=url.scheme, host=url.host, port=url.port, path=url.path.rstrip("/"))
    below = text.startswith("*.")
    rest = text[2:] if below else text
    if re.search(r"[\s/?#@*\\]", rest):
        raise _bad(text, "an entry of allow is a host, host:port, *.domain or a URL with http:// or https://")
    host, port = _host_and_port(text, rest)
    if below and ("." not in host or _address(host)):
        raise _bad(text, "*. is followed by a domain of two names or more, such as *.example.com")
    return _Entry(host=host, port=port, below=below)


def _host_and_port(text: str, authority: str) -> tuple[str, int | None]:
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise _bad(text, "host and port are not written as host or host:port, IPv6 as [host]:port")
    port = int(found[2]) if found[2] else None
    if port is not None and not 0 < port < 65536:
        raise _bad(text, f"{port} is no port")
    return _host(text, found[1]), port


def _host(text: str, host: str) -> str:
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError as error:
            raise _bad(text, str(error)) from error
        if (mapped := address.ipv4_mapped) is not None:  # which Python 3.13 writes with dots
            return f"[::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}]"
        return f"[{address.compressed}]"
    if not host.isascii():
        host = _ascii(text, host)
    host = host.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _bad(text, f"{host!r} is no name of a host")
    if _NUMBER.fullmatch(labels[-1]) and _address(host) is None:
        raise _bad(text, f"{host!r} is neither a name nor an IPv4 address in its usual form")
    return host


def _ascii(text: str, host: str) -> str:
    if len(host) > 253 or not _AMBIGUOUS.isdisjoint(host):
        raise _bad(text, f"write {host!r} in its ASCII form, which begins with xn--")
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise _bad(text, f"{host!r} is no name of a host") from error


def _path(text: str, path: str) -> str:
    if not _TEXT.fullmatch(path) or "?" in path:
        raise _bad(text, "its path has characters that must be percent-encoded")
    path = re.sub("%..", _plain, path)
    if _HIDDEN.search(path):
        raise _bad(text, "its path hides a slash, a backslash, a per cent or a control character")
    if any(step.partition(";")[0] in (".", "..") for step in path.split("/")):
        raise _bad(text, "its path has . or .. as a step")
    return path


def _plain(escaped: re.Match[str]) -> str:
    """Return an escape as the letter it stands for where that means the same, else in upper case."""
    letter = chr(int(escaped[0][1:], 16))
    return letter if re.fullmatch("[A-Za-z0-9._~-]", letter) else escaped[0].upper()


def _query(text: str, query: str) -> str:
    if not _TEXT.fullmatch(query):
        raise _bad(text, "its query has characters that must be percent-encoded")
    return query


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _bad(text: str, why: str) -> ConfigError:
    return ConfigError(f"This URL or host of a remote agent cannot be used, because {why}: {text!r:.200}")
