"""Ready-made skills for interlock. There are none yet: the package holds their place."""

__all__: list[str] = []
