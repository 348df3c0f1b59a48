"""For tests of agents: a provider server whose every trait is chosen, and which tells what it was sent.

`server.FakeProviderServer` runs it in threads of the test's own process; `python -m sessionlib.testing.server` runs it
as a process of its own, which survives the workers that a test kills.
"""
