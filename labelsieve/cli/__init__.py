"""The command line, one function per command: parse options, call `workflow`, print."""
