"""The file service: reads and writes the files of a sandbox from inside of it, for the host."""
