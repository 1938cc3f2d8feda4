"""The frameworks' own tests, with our adapters in the place of their classes.

python -m benchmarks.suites autogen FOLDER --backend docker

FOLDER has the frameworks' source archives, unpacked, in the releases that are installed; wheels have no tests in them.
None of their code is here, only which tests are about an executor, and why some cannot pass.

suite           what there is to say about one framework's tests
autogen, openai_agents, smolagents
plugin          puts our classes into their tests, and sorts what happens
"""
