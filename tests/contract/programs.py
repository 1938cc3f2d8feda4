"""Small programs whose exit code, output and errors must be those of plain `python3 main.py`; one idea each."""

from __future__ import annotations

ENDING = {
    "an empty program": "",
    "a comment alone": "# nothing\n",
    "printing": "print('hello', 'world', sep='-')\nprint(6 * 7)",
    "printing to both streams": "import sys\nprint('out')\nprint('err', file=sys.stderr)",
    "sys.exit without a value": "import sys\nsys.exit()",
    "sys.exit(None)": "import sys\nsys.exit(None)",
    "sys.exit(0)": "import sys\nsys.exit(0)",
    "sys.exit(3)": "import sys\nsys.exit(3)",
    "sys.exit(True)": "import sys\nsys.exit(True)",
    "sys.exit(300)": "import sys\nsys.exit(300)",
    "sys.exit(-1)": "import sys\nsys.exit(-1)",
    "sys.exit of a huge number": "import sys\nsys.exit(2 ** 80)",
    "sys.exit with text": "import sys\nsys.exit('stop: naïve')",
    "sys.exit with empty text": "import sys\nsys.exit('')",
    "sys.exit with a tuple": "import sys\nsys.exit((1, 2))",
    "sys.exit with a float": "import sys\nsys.exit(2.5)",
    "sys.exit with a lone surrogate": "import sys\nsys.exit('bad \\udc80')",
    "a subclass of SystemExit": "class Stop(SystemExit): pass\nraise Stop(9)",
    "raise SystemExit": "raise SystemExit",
    "sys.exit in a function in a try": "import sys\ntry:\n    sys.exit(4)\nfinally:\n    print('cleaning')",
    "the builtin exit": "exit(5)",
    "the builtin quit": "quit('bye')",
    "the other builtins of site": "print(help, copyright, credits, license)",
    "os._exit drops nothing that was flushed": "import os\nprint('said', flush=True)\nos._exit(6)",
    "os._exit skips handlers": "import atexit, os\natexit.register(print, 'never')\nos._exit(0)",
    "os.abort": "import os\nos.abort()",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "KeyboardInterrupt in a function": "def f():\n    raise KeyboardInterrupt('now')\nf()",
    "GeneratorExit": "raise GeneratorExit('odd')",
    "a handled signal": (
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('caught'))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\nprint('on')"
    ),
    "SIGINT from outside": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('not reached')",
    "SIGPIPE is ignored": "import os, signal\nos.kill(os.getpid(), signal.SIGPIPE)\nprint('on')",
    "which signals are ignored": (
        "import signal\nprint([s.name for s in signal.valid_signals() if hasattr(s, 'name') "
        "and signal.getsignal(s) not in (signal.SIG_DFL, None)])"
    ),
    "the signal mask": "import signal\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
}

TRACEBACKS = {
    "an uncaught exception": "def f(x):\n    return 1 / x\n\nf(0)",
    "an exception without a message": "raise ValueError",
    "an exception with notes": "e = ValueError('x')\ne.add_note('first\\nsecond')\nraise e",
    "a chained exception": "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('no a') from error",
    "an exception while another is handled": "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('second')",
    "an exception group": (
        "def f(n):\n    raise ValueError(n)\nerrors = []\nfor n in range(2):\n    try:\n        f(n)\n"
        "    except ValueError as error:\n        errors.append(error)\nraise ExceptionGroup('both', errors)"
    ),
    "a syntax error": "print('never')\nx = = 1\n",
    "a syntax error in a long line": "value = [1, 2, 3\nprint(value)\n",
    "an indentation error": "if True:\nprint(1)\n",
    "mixed tabs and spaces": "if True:\n        a = 1\n\tb = 2\n",
    "an unfinished string": "x = 'abc\n",
    "return outside a function": "return 1\n",
    "a bad escape is a warning": "print('\\d')\n",
    "an assertion": "assert 1 + 1 == 3, 'sums'",
    "a misspelled name": "foobar = 1\nprint(foobaz)",
    "a misspelled attribute": "import math\nmath.squareroot",
    "a missing module": "import no_such_module_anywhere",
    "an error in exec": "exec('1 / 0')",
    "an error in a lambda and a comprehension": "print([(lambda v: 1 // v)(v) for v in (1, 0)])",
    "an error across lines": "def f(*a):\n    raise TypeError(a)\nf(\n    1,\n    2,\n)",
    "an error in a class body": "class A:\n    x = undefined\n",
    "an error in __repr__ of an exception": (
        "class E(Exception):\n    def __str__(self):\n        raise ValueError('inner')\nraise E"
    ),
    "unicode in a traceback": "def grüße():\n    raise ValueError('日本')\ngrüße()",
    "a custom excepthook": "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t.__name__, v)\n1 / 0",
    "an excepthook that fails": "import sys\ndef hook(*_):\n    raise KeyError('hook')\nsys.excepthook = hook\n1 / 0",
    "an excepthook that exits": "import sys\nsys.excepthook = lambda *_: sys.exit(7)\n1 / 0",
    "no excepthook at all": "import sys\ndel sys.excepthook\n1 / 0",
    "an error in a thread": (
        "import threading\ndef work():\n    1 / 0\n"
        "t = threading.Thread(target=work, name='worker')\nt.start()\nt.join()"
    ),
    "an exception in a finalizer": "class A:\n    def __del__(self):\n        1 / 0\nA()\nprint('on')",
    "an unawaited coroutine": "async def f(): pass\nf()\nprint('on')",
    "traceback.print_exc": "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()",
    "a warning": "import warnings\nwarnings.warn('careful')\nprint('on')",
    "logging an exception": "import logging\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('oh')",
    "warnings as errors": "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('careful')",
}
