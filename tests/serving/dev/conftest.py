"""A browser, for those tests of the dev page that need one."""

from browsers import browser

__all__ = ["browser"]
