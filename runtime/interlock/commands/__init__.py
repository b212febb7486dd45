"""The subcommands of ``interlock``, a module with a `Command` each."""
