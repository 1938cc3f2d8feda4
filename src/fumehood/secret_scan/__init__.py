"""Values that are known, such as secrets and canaries: found in texts and in what leaves, and replaced.

values     finds a value in a text, in the forms that a program can give it, and replaces what was found
canaries   finds values that raise an alert
redaction  replaces values in text and bytes
"""
