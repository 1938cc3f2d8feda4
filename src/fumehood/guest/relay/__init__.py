"""The guest in a container: everything between the container's standard streams and the runs inside.

A container has one connection to the host, its standard input and output. `multiplexer` carries any number of
conversations over it, at both ends. `service` is process 1: it turns conversations into pipes and sockets, so that
whatever is behind them is the same as elsewhere. `forker` forks runs and never sees their data. `supervisor` is one
process for each run: it holds everything that the run starts, keeps its time and ends it. `isolation` is what the
program's process gives up; `scratch` are the folders that runs use up.

Must not know Docker: it needs a container of any kind, two streams and Python.
"""
