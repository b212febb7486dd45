"""The subcommands of ``routelock``, a module with a `Command` each."""
