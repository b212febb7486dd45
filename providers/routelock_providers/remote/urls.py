"""URLs of remote agents, and the list of those that may be called. No name is resolved.

A URL is parsed once, and everything that two parsers could read differently is refused. The request goes to
the text that the checked parts make, so the checked URL and the sent URL are the same. The list holds names:
the owner of a domain decides what its names resolve to.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import urldefrag, urljoin, urlsplit

from routelock.errors import ConfigError, InvalidRequest
from routelock_providers.chat_completions.openai_compatible import PATH

__all__ = ["AgentUrl", "AllowList", "UrlNotAllowed", "completions_url", "parse_url", "redirect_target"]


_LONGEST = 8000

_PORTS = {"http": 80, "https": 443}

_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@]+)(?::([0-9]{0,5}))?")

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")

_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

_TEXT = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
"""Matches the characters of a path or a query (RFC 3986, sections 3.3 and 3.4)."""

_HIDDEN = re.compile(r"%(2F|5C|25|[01][0-9A-F]|7F)")
"""Escaped slashes, backslashes, percent signs and control characters: servers disagree on their meaning."""

_AMBIGUOUS = frozenset("ßẞς\u200c\u200d")
"""Letters that the two standards for international names (RFC 3490 and 5891) treat differently."""


class UrlNotAllowed(InvalidRequest):
    """The URL is neither the program's own nor on its list, so nothing was sent there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUrl:
    """A URL in the form in which it is compared and sent. Make one with `parse_url`."""

    scheme: str
    host: str
    """The host in lower case and ASCII, without a dot at the end; an IPv6 address has brackets."""
    port: int
    path: str
    query: str = ""

    @property
    def authority(self) -> str:
        """The host, and the port unless it is the default one."""
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: the same server answers all URLs of an origin."""
        return f"{self.scheme}://{self.authority}"

    @property
    def is_local(self) -> bool:
        """Whether the name or address of the host always means this machine."""
        if self.host.rpartition(".")[2] == "localhost":
            return True
        address = _address(self.host)
        return address is not None and address.is_loopback

    def __str__(self) -> str:
        return f"{self.origin}{self.path}{'?' if self.query else ''}{self.query}"


def parse_url(text: str) -> AgentUrl:
    """Return a URL in the form in which it is compared and sent.

    Raises:
        ConfigError: the text is not an http or https URL, or can be misread; the message says why.
    """
    if not isinstance(cast(object, text), str):
        raise _url_error(text, "it must be text")
    if len(text) > _LONGEST or re.search(r"[\x00-\x20\x7f-\xa0\\]", text):
        raise _url_error(text, "it is too long, or holds blanks, backslashes or control characters")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise _url_error(text, str(error)) from error
    if parts.scheme not in _PORTS or not parts.netloc:
        raise _url_error(text, "it must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise _url_error(text, "it holds a user or password; pass api_key= or headers= instead")
    if "#" in text:
        raise _url_error(text, "a fragment (#...) is never sent")
    host, port = _host_and_port(text, parts.netloc)
    return AgentUrl(
        scheme=parts.scheme,
        host=host,
        port=_PORTS[parts.scheme] if port is None else port,
        path=_path(text, parts.path) or "/",
        query=_query(text, parts.query),
    )


def completions_url(text: str) -> AgentUrl:
    """Return the URL to post to: ``/chat/completions`` is added if it is missing.

    Raises:
        ConfigError: see `parse_url`.
    """
    url = parse_url(text)
    path = url.path.rstrip("/")
    return replace(url, path=path if path.endswith(PATH) else path + PATH)


def redirect_target(url: AgentUrl, location: str) -> AgentUrl:
    """Return the URL of a redirect with this ``Location`` header.

    Raises:
        ConfigError: the target is not a usable URL, or the redirect leads from https to http.
    """
    if re.search(r"[\x00-\x20\x7f-\xa0\\]", location):  # urljoin silently drops some of these
        raise _url_error(location, "it holds blanks, backslashes or control characters")
    try:
        target = parse_url(urldefrag(urljoin(str(url), location)).url)
    except ValueError as error:
        raise error if isinstance(error, ConfigError) else _url_error(location, str(error)) from error
    if url.scheme == "https" and target.scheme != "https":
        raise _url_error(location, "it leads from https to http")
    return target


class AllowList:
    """The URLs that may be called although they do not come from the program itself.

    Args:
        entries: each is one of

            * a host: ``"agents.example.com"`` for its https port, or ``"agents.example.com:8443"`` for that
              port. Plain http is allowed for this machine only, ``"localhost:8000"`` or ``"127.0.0.1:8000"``;
            * ``"*.example.com"``: every host below that domain, without the domain itself;
            * a URL, ``"https://example.com/agents/"``: all URLs whose path begins with these segments. Only
              this form allows http elsewhere: ``"http://agents.internal:8000/"``.

    Raises:
        ConfigError: an entry has none of these forms, or allows a whole top-level domain.
    """

    def __init__(self, entries: Collection[str]) -> None:
        if isinstance(entries, str):
            raise ConfigError(f"allow must be a list of hosts or URLs, such as [{entries!r}], not one text.")
        self._entries = tuple(_entry(entry) for entry in entries)
        self._texts = tuple(entries)

    def permits(self, url: AgentUrl) -> bool:
        """Return whether one of the entries covers this URL."""
        return any(entry.covers(url) for entry in self._entries)

    def __str__(self) -> str:
        return ", ".join(self._texts) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    host: str
    port: int | None
    below: bool = False
    """Whether the entry covers the hosts below ``host`` instead of ``host``."""
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
            raise _url_error(text, "an entry of allow has no query")
        return _Entry(scheme=url.scheme, host=url.host, port=url.port, path=url.path.rstrip("/"))
    below = text.startswith("*.")
    rest = text[2:] if below else text
    if re.search(r"[\s/?#@*\\]", rest):
        raise _url_error(
            text, "an entry of allow is a host, host:port, *.domain or a URL with http:// or https://"
        )
    host, port = _host_and_port(text, rest)
    if below and ("." not in host or _address(host)):
        raise _url_error(text, "*. is followed by a domain of two names or more, such as *.example.com")
    return _Entry(host=host, port=port, below=below)


def _host_and_port(text: str, authority: str) -> tuple[str, int | None]:
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise _url_error(text, "its host is not in the form host, host:port or, for IPv6, [host]:port")
    port = int(found[2]) if found[2] else None
    if port is not None and not 0 < port < 65536:
        raise _url_error(text, f"{port} is not a port")
    return _host(text, found[1]), port


def _host(text: str, host: str) -> str:
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError as error:
            raise _url_error(text, str(error)) from error
        if (mapped := address.ipv4_mapped) is not None:  # Python 3.13 writes such an address with dots
            return f"[::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}]"
        return f"[{address.compressed}]"
    if not host.isascii():
        host = _ascii(text, host)
    host = host.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _url_error(text, f"{host!r} is not the name of a host")
    if _NUMBER.fullmatch(labels[-1]) and _address(host) is None:
        raise _url_error(text, f"{host!r} is neither a name nor an IPv4 address in its usual form")
    return host


def _ascii(text: str, host: str) -> str:
    if len(host) > 253 or not _AMBIGUOUS.isdisjoint(host):
        raise _url_error(text, f"write {host!r} in its ASCII form, which begins with xn--")
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise _url_error(text, f"{host!r} is not the name of a host") from error


def _path(text: str, path: str) -> str:
    if not _TEXT.fullmatch(path) or "?" in path:
        raise _url_error(text, "its path has characters that must be percent-encoded")
    path = re.sub("%..", _plain, path)
    if _HIDDEN.search(path):
        raise _url_error(
            text, "its path holds an escaped slash, backslash, percent sign or control character"
        )
    if any(segment.partition(";")[0] in (".", "..") for segment in path.split("/")):
        raise _url_error(text, "its path has . or .. as a segment")
    return path


def _plain(escaped: re.Match[str]) -> str:
    """Return the letter of an escape that need not be escaped, else the escape in upper case."""
    letter = chr(int(escaped[0][1:], 16))
    return letter if re.fullmatch("[A-Za-z0-9._~-]", letter) else escaped[0].upper()


def _query(text: str, query: str) -> str:
    if not _TEXT.fullmatch(query):
        raise _url_error(text, "its query has characters that must be percent-encoded")
    return query


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _url_error(text: str, why: str) -> ConfigError:
    return ConfigError(f"This URL or host of a remote agent cannot be used, because {why}: {text!r:.200}")
