"""The keeper: a resident process of the user's own that does `hood run` in warm cells.

`fumehood_client`, outside of the package, is the other end. The resident accepts a client, compares it with itself
(`identity`) and hands its descriptors to a worker: a process forked from the resident, with everything imported and its
own cells, which becomes what the client is (streams, folder, environment, file mode mask) and does the run with the
code of `cli/task`. A worker serves one client at a time. The resident itself runs nothing.
"""
