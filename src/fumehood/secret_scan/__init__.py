"""Values that are known, such as secrets and canaries, recognised wherever somebody looks: in texts, in what leaves.

values     a value in a text, in the forms that a program can give it
canaries   values that raise an alarm
spans      the places of what was found
"""
