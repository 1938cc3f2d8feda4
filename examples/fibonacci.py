"""Prints the first numbers of the Fibonacci sequence: `hood run examples/fibonacci.py -- 15`."""

import sys


def fibonacci(count: int) -> list[int]:
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:count]


print(*fibonacci(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
