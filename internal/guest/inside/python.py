# The driver of a persistent Python. It begins with the control pipe as standard input and the pipe of answers as standard output. It
# takes one line per call (see header in interpproc.go), runs the source file "code" with streams of its own, and answers with a mark
# and three fields, all NUL-terminated: number, status, directory.
def _drive(directory, length):
    import ast, builtins, io, linecache, os, signal, sys, threading, traceback, types

    me = __file__
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.argv = [""]
    if "" not in sys.path:
        sys.path.insert(0, "")
    tty_null = os.open("/dev/null", os.O_RDWR)
    for fd, far in ((0, 250), (1, 251)):
        os.dup2(fd, far, inheritable=False)
        os.dup2(tty_null, fd)
    control = os.fdopen(250, "rb", buffering=0)

    class Call:
        """The streams of one call. Threads that it started keep them."""

        def __init__(self, out, err):
            self.fds = (out, err)
            self.threads = []
            self.streams = {
                1: io.TextIOWrapper(io.FileIO(out, "w"), "utf-8", "backslashreplace", write_through=True),
                2: io.TextIOWrapper(io.FileIO(err, "w"), "utf-8", "backslashreplace", write_through=True),
            }
            self.buffers = {
                1: io.TextIOWrapper(io.BufferedWriter(io.FileIO(out, "w", closefd=False), 65536), "utf-8", "backslashreplace"),
            }

        def alive(self):
            self.threads = [t for t in self.threads if t.is_alive()]
            return bool(self.threads)

        def flush(self):
            for s in self.buffers.values():
                try:
                    s.flush()
                except (OSError, ValueError):
                    pass

        def close(self):
            self.flush()
            for s in self.streams.values():
                try:
                    s.close()
                except OSError:
                    pass

    state = {"call": None, "running": False}
    lingering = []

    class Output(io.TextIOBase):
        """sys.stdout and sys.stderr: whoever writes gets the streams of the call that it belongs to."""

        def __init__(self, fd):
            self._fd = fd

        def _target(self):
            call = getattr(threading.current_thread(), "_perdure_call", None) or state["call"]
            if call is None:
                return None
            if self._fd in call.buffers and call is state["call"] and state["running"]:
                return call.buffers[self._fd]
            return call.streams[self._fd]

        encoding = property(lambda self: "utf-8")
        errors = property(lambda self: "backslashreplace")
        name = property(lambda self: "<stdout>" if self._fd == 1 else "<stderr>")
        mode = property(lambda self: "w")

        @property
        def buffer(self):
            t = self._target()
            if t is None:
                return io.BytesIO()
            t.flush()
            return t.buffer

        def write(self, text):
            t = self._target()
            return t.write(text) if t is not None else len(text)

        def flush(self):
            t = self._target()
            if t is not None:
                t.flush()

        def writable(self):
            return True

        def fileno(self):
            self.flush()
            return self._fd

        def isatty(self):
            return False

        def close(self):
            pass

    sys.stdout, sys.stderr = Output(1), Output(2)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr

    start = threading.Thread.start

    def start_in_call(self):
        call = getattr(threading.current_thread(), "_perdure_call", None) or state["call"]
        self._perdure_call = call
        if call is not None:
            call.threads.append(self)
        return start(self)

    threading.Thread.start = start_in_call

    # Output of Python and of what it starts must keep their order.
    import subprocess

    popen = subprocess.Popen.__init__

    def flushed_popen(self, *args, **kwargs):
        sys.stdout.flush()
        return popen(self, *args, **kwargs)

    subprocess.Popen.__init__ = flushed_popen
    system = os.system

    def flushed_system(command):
        sys.stdout.flush()
        return system(command)

    os.system = flushed_system
    os.register_at_fork(before=lambda: sys.stdout.flush())

    def on_interrupt(signum, frame):
        if state["running"]:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)

    def on_reseed(signum, frame):
        seeds = os.urandom(64)
        done = ["random"]
        import random

        random.seed(seeds)
        if "_ssl" in sys.modules:
            import ssl

            ssl.RAND_add(os.urandom(64), 64.0)
            done.append("ssl")
        if "numpy" in sys.modules:
            try:
                sys.modules["numpy"].random.seed(list(os.urandom(64)))
                done.append("numpy")
            except Exception:
                pass
        if "torch" in sys.modules:
            try:
                sys.modules["torch"].manual_seed(int.from_bytes(os.urandom(8), "big") >> 1)
                done.append("torch")
            except Exception:
                pass
        answer("reseeded", " ".join(done))

    signal.signal(signal.SIGUSR2, on_reseed)

    def answer(number, status):
        try:
            cwd = os.getcwd()
        except OSError:
            cwd = ""
        os.write(251, b"\0".join([b"", b"perdure", number.encode(), str(status).encode(), os.fsencode(cwd), b""]))

    def show(kind, value, tb):
        while tb is not None and tb.tb_frame.f_code.co_filename == me:
            tb = tb.tb_next
        seen = set()

        def strip(e):
            if e is None or id(e) in seen:
                return
            seen.add(id(e))
            t = e.__traceback__
            while t is not None and t.tb_frame.f_code.co_filename == me:
                t = t.tb_next
            e.__traceback__ = t
            strip(e.__cause__)
            strip(e.__context__)

        strip(value)
        traceback.print_exception(kind, value, tb, file=sys.stderr)

    def execute(number, source):
        name = "<call %s>" % number
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        space = main.__dict__
        exec(compile(tree, name, "exec"), space)
        if last is not None:
            value = eval(compile(last, name, "eval"), space)
            if value is not None:
                builtins._ = None
                print(repr(value))
                builtins._ = value

    def one(number, exec_id, has_input):
        path = os.path.join(directory, number)
        fd_in = os.open(path + ".in", os.O_RDONLY) if has_input else os.dup(tty_null)
        if has_input:
            answer(number, "opened")
        call = Call(os.open(path + ".out", os.O_WRONLY), os.open(path + ".err", os.O_WRONLY))
        os.dup2(fd_in, 0)
        os.close(fd_in)
        os.dup2(call.fds[0], 1)
        os.dup2(call.fds[1], 2)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8", "surrogateescape")
        os.environ["PERDURE_EXEC"] = exec_id
        state["call"] = call
        status = 0
        try:
            with open(os.path.join(directory, "code"), encoding="utf-8", errors="surrogateescape", newline="") as f:
                source = f.read()
            state["running"] = True
            execute(number, source)
            state["running"] = False
        except SystemExit as e:
            state["running"] = False
            if e.code is None:
                status = 0
            elif isinstance(e.code, int):
                status = e.code & 0xFF
            else:
                print(e.code, file=sys.stderr)
                status = 1
        except BaseException:
            state["running"] = False
            status = 1
            show(*sys.exc_info())
        call.flush()
        for fd in (0, 1, 2):
            os.dup2(tty_null, fd)
        state["call"] = None
        if call.alive():
            lingering.append(call)
        else:
            call.close()
        for old in lingering[:]:
            if not old.alive():
                lingering.remove(old)
                old.close()
        return status

    pending = b""
    while True:
        while len(pending) < length:
            piece = control.read(length - len(pending))
            if not piece:
                return
            pending += piece
        number, exec_id, has_input, _ = pending.decode().split()
        pending = b""
        try:
            status = one(number, exec_id, has_input == "1")
        except KeyboardInterrupt:
            status = 1
        except BaseException:  # a fault of ours must not end the interpreter
            status = 1
            os.write(2, traceback.format_exc().encode())
        answer(number, status)


import sys as _sys

_drive(_sys.argv[1], int(_sys.argv[2]))
