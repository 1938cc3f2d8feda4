"""Counts words on standard input: `hood run examples/count_words.py < README.md`."""

import sys
from collections import Counter

words = Counter(word.lower() for line in sys.stdin for word in line.split() if word.isalpha())
for word, count in words.most_common(5):
    print(f"{count:5}  {word}")
