"""`hood run --project DIR`: the program works on a copy of a folder, and what it changed can be written back.

Owns which files go in, how changes are shown, and how they are written to the host's folder. How files get into a
sandbox and out of it is `sandbox/files`. Everything that comes out, names included, is the program's and not trusted.
"""
