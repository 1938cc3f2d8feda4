"""The HTTP API below /v1: small handlers that check a scope, call what the server owns, and describe the answer."""
