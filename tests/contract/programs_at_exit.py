"""More small programs to compare with plain `python3 main.py`: what they see of themselves, and how they end."""

from __future__ import annotations

STATE = {
    "__name__": "print(__name__, __package__, __spec__, __doc__, type(__loader__).__name__)",
    "__file__": "import sys\nprint(__file__, sys.argv)",
    "the docstring": "'''About this.'''\nprint(__doc__)",
    "the global names": "print(sorted(globals()))",
    "annotations": "x: int = 1\nprint(__annotations__)",
    "the main module": "import sys\nx = 5\nprint(sys.modules['__main__'].x, sys.modules['__main__'])",
    "importing __main__": "x = 7\nimport __main__\nprint(__main__.x)",
    "pickling an own class": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "inspect.getsource": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))",
    "the standard streams": "import sys\nprint(sys.stdin)\nprint(sys.stdout)\nprint(sys.stderr)",
    "the original streams": "import sys\nprint(sys.__stdout__ is sys.stdout, sys.__stdin__ is sys.stdin)",
    "encodings": (
        "import locale, sys\nprint(sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors, sys.stdin.errors)\n"
        "print(sys.getfilesystemencoding(), locale.getpreferredencoding(), locale.getlocale())"
    ),
    "binary below text": "import sys\nprint(sys.stdout.buffer.fileno(), sys.stdin.fileno(), sys.stderr.isatty())",
    "reading input": "print(input('name? '))\nimport sys\nprint(repr(sys.stdin.read()))",
    "input at the end": "import sys\nsys.stdin.read()\ninput()",
    "iterating over input": "import sys\nprint([line for line in sys.stdin])",
    "the recursion limit": "import sys\nprint(sys.getrecursionlimit())",
    "garbage collection": "import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.get_debug())",
    "the umask": "import os\nprint(oct(os.umask(0)))",
    "the priority": "import os\nprint(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))",
    "open descriptors": "import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:3])",
    "warning filters": "import warnings\nprint([f[:3] for f in warnings.filters])",
    "threads": "import threading\nprint(threading.current_thread().name, threading.active_count())",
    "switch interval": "import sys\nprint(sys.getswitchinterval(), sys.gettrace(), sys.getprofile())",
    "the context": "import contextvars, decimal\nprint(list(contextvars.copy_context()), decimal.getcontext().prec)",
    "no leftover event loop": "import asyncio\nprint(asyncio._get_running_loop())",
}

AT_EXIT = {
    "atexit handlers in reverse": "import atexit\nfor n in (1, 2, 3):\n    atexit.register(print, n)\nprint('end')",
    "atexit after an exception": "import atexit\natexit.register(print, 'bye')\n1 / 0",
    "an atexit handler that fails": (
        "import atexit\ndef bad():\n    1 / 0\natexit.register(print, 'still')\natexit.register(bad)\nprint('end')"
    ),
    "an atexit handler that sees globals": "import atexit\nx = 5\natexit.register(lambda: print(x))",
    "an atexit handler added by another": "import atexit\natexit.register(lambda: atexit.register(print, 'late'))",
    "exit in an atexit handler": "import atexit, sys\natexit.register(sys.exit, 3)\nprint('end')",
    "a finalizer at the end": "class A:\n    def __del__(self):\n        print('gone')\na = A()\nprint('end')",
    "a finalizer in a cycle": (
        "class A:\n    def __del__(self):\n        print('gone')\na = A()\na.me = a\ndel a\nprint('end')"
    ),
    "finalizers use what they need": (
        "import os\nclass A:\n    def __del__(self):\n        print(os.path.join('a', 'b'), len('abc'))\na = A()"
    ),
    "weakref.finalize": (
        "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\nprint('end')"
    ),
    "an unflushed file": (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', \"f = open('x', 'w'); f.write('kept')\"])\nprint(open('x').read())"
    ),
    "a thread that outlives the code": (
        "import threading\ngo = threading.Event()\n"
        "def work():\n    go.wait()\n    print('thread')\nthreading.Thread(target=work).start()\nprint('end')\ngo.set()"
    ),
    "a thread that outlives an exception": (
        "import threading\ngo = threading.Event()\n"
        "def work():\n    go.wait()\n    print('thread')\nthreading.Thread(target=work).start()\ngo.set()\n1 / 0"
    ),
    "a daemon thread that never ends": (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\nprint('end')"
    ),
    "a pool that nobody shut down": (
        "from concurrent.futures import ThreadPoolExecutor\nimport threading\ngo = threading.Event()\n"
        "ThreadPoolExecutor(2).submit(lambda: go.wait() and print('pooled'))\nprint('end')\ngo.set()"
    ),
    "sys.exit in a thread": "import sys, threading\nthreading.Thread(target=sys.exit, args=(3,)).start()\nprint('end')",
    "print without a newline": "print('a', end='')",
    "order of print and os.write": "import os\nprint('a', end='')\nos.write(1, b'b')\nprint('c')",
    "order of print and a child": "import os\nprint('a', end='')\nos.system('printf b')\nprint('c')",
    "binary output": "import sys\nsys.stdout.buffer.write(bytes(range(32, 127)))",
    "print after closing stdout": "import sys\nsys.stdout.close()\nprint('x')",
    "closing stdout": "import sys\nprint('x')\nsys.stdout.close()",
    "closing descriptor 1": "import os\nos.close(1)",
    "stdout is None": "import sys\nsys.stdout = None\nprint('lost')",
    "stderr is None": "import sys\nsys.stderr = None\n1 / 0",
    "stdout is something else": "import io, sys\nsys.stdout = io.StringIO()\nprint('kept')",
    "stdout is deleted": "import sys\ndel sys.stdout",
    "stdout is full": "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x')",
    "sys.exit with text and no stderr": "import sys\nsys.stderr = None\nsys.exit('lost')",
    "fork and print": "import os\nif os.fork() == 0:\n    print('child')\nelse:\n    os.wait()\n    print('parent')",
    "fork and exit codes": (
        "import os, sys\nif os.fork() == 0:\n    sys.exit(5)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
    ),
    "execv": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(42)'])",
    "asyncio.run": (
        "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return 3\nprint(asyncio.run(main()))"
    ),
    "a failing task": "import asyncio\nasync def main():\n    raise ValueError('task')\nasyncio.run(main())",
    "changing argv and path": "import sys\nsys.argv.append('x')\nsys.path.clear()\nprint(sys.argv[1:])",
}

# The stack of a program does not begin with it: below are the frames of the guest that became it. Tracebacks of
# exceptions do not show them; a program that walks the stack sees them.
STACK_WALKS = {
    "deep recursion": "def f():\n    f()\nf()",
    "traceback.print_stack": "import traceback\ndef f():\n    traceback.print_stack()\nf()",
    "the number of frames": "import inspect\nprint(len(inspect.stack()))\nimport sys\nprint(sys._getframe().f_back)",
    "a warning about the caller": "import warnings\nwarnings.warn('careful', stacklevel=2)\nprint('on')",
    "faulthandler": "import faulthandler\nfaulthandler.dump_traceback()",
}

# What a program puts in the place of functions that an interpreter's end could use is the program's own affair.
PATCHED = {
    "os._exit does nothing": "import os\nos._exit = lambda code: None\n1 / 0",
    "os._exit says success": "import os\nreal = os._exit\nos._exit = lambda code: real(0)\n1 / 0",
    "os._exit says success at exit": "import os, sys\nreal = os._exit\nos._exit = lambda code: real(0)\nsys.exit(3)",
    "os._exit says failure": "import os\nreal = os._exit\nos._exit = lambda code: real(9)",
    "sys.exit does nothing": "import sys\nsys.exit = lambda code: None\nsys.exit(4)\n1 / 0",
    "no BaseException": "import builtins\nbuiltins.BaseException = ValueError\nraise KeyError('x')",
    "no isinstance": "import builtins\nbuiltins.isinstance = None\nraise SystemExit(5)",
    "gc.collect fails": "import gc\ndef fail():\n    raise ValueError\ngc.collect = fail",
    "atexit's own function is gone": "import atexit\natexit.register(print, 'bye')\natexit._run_exitfuncs = None",
    "traceback is something else": "import traceback\ntraceback.format_exception = None\n1 / 0",
    "waiting for threads fails": "import threading\ndef fail():\n    1 / 0\nthreading._shutdown = fail\nprint('end')",
    "an exit code that cannot be shown": (
        "class Code:\n    def __str__(self):\n        raise ValueError\n    __repr__ = __str__\n"
        "raise SystemExit(Code())"
    ),
    "an excepthook that leaves by a patched way": (
        "import os, sys\nreal = os._exit\nos._exit = lambda code: real(0)\n"
        "def hook(*_):\n    raise RuntimeError('hook')\nsys.excepthook = hook\n1 / 0"
    ),
    "an interrupt without kill": "import os, signal\nos.kill = signal.signal = None\nraise KeyboardInterrupt",
    "no modules": "import sys\nsys.modules.clear()\nprint('end')",
}
